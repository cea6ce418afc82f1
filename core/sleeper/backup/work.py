"""The temporary folder and the progress of a backup or restore."""

import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sleeper.errors import UnavailableError
from sleeper.instance import Instance

OnProgress = Callable[[int, int], None]
"""Receives the number of bytes of data files that are done, and the total."""


@contextmanager
def working_folder(instance: Instance, prefix: str) -> Iterator[Path]:
    """Yields a temporary folder. A full disk is UnavailableError."""
    spill = instance.storage.spill_folder()
    try:
        with tempfile.TemporaryDirectory(dir=spill, prefix=prefix) as folder:
            yield Path(folder)
    except (OSError, sqlite3.OperationalError) as error:
        raise UnavailableError(f"cannot write temporary files in {spill}: {error}") from error


class Progress:
    """The bytes that are done of all tables. Safe for threads."""

    def __init__(self, total: int, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._done, self._total = 0, total
        on_progress(0, total)

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._on_progress(self._done, self._total)
