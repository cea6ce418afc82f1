"""Folders on local disk, each locked by one process and reused by later ones.

Concurrent processes lock folders `0`, `1`, … below one parent. The kernel releases a lock when its
process ends, so the next command, or the next invocation of a warm lambda, reuses the files.
"""

import os
import shutil
import threading
from pathlib import Path

from sleeper.errors import UnavailableError
from sleeper.storage.disk import open_lock, try_lock

_LOCK_FILE = "lock"
_SPILL_FOLDER = "spill"


class ProcessFolder:
    """Locks a folder on first use. Safe for threads, not for forks."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._acquisition = threading.Lock()
        self._folder: Path | None = None
        self._lock_file: int | None = None

    def path(self) -> Path:
        """Returns the folder. UnavailableError if it cannot be created or locked."""
        with self._acquisition:
            if self._folder is None:
                try:
                    self._folder, self._lock_file = _acquire(self._parent)
                except OSError as error:
                    raise UnavailableError(f"{self._parent}: {error}") from error
            return self._folder

    def close(self) -> None:
        """Releases the folder."""
        with self._acquisition:
            if self._folder is not None and self._lock_file is not None:
                shutil.rmtree(self._folder / _SPILL_FOLDER, ignore_errors=True)
                os.close(self._lock_file)
            self._folder = self._lock_file = None

    def spill(self) -> Path:
        """Returns a folder in it whose files no other process reuses."""
        folder = self.path() / _SPILL_FOLDER
        folder.mkdir(exist_ok=True)
        return folder


def _acquire(parent: Path) -> tuple[Path, int]:
    parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        folder = parent / str(number)
        folder.mkdir(exist_ok=True)
        file = open_lock(folder / _LOCK_FILE, 0o600)
        if not try_lock(file):
            os.close(file)
            number += 1
            continue
        # A killed process may have left these files.
        shutil.rmtree(folder / _SPILL_FOLDER, ignore_errors=True)
        return folder, file
