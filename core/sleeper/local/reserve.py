"""Disk space in reserve, with which garbage collection begins on a full disk.

A collection logs the files that it deletes before it deletes them, and so needs space before it
frees any. `Reserve` keeps a file in the instance's folder for that. A collection on a full disk
deletes the file, and creates it again when it has made room.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sleeper.storage.disk import free_bytes

logger = logging.getLogger(__name__)

RESERVE_FILE = "reserve"
# As large as a -wal file, which is moved into its database first, and may enlarge that as much.
_BYTES = 4 * 1024**2
# Enough for the entries of a collection, and the pages of the state that they change.
_FULL_BYTES = 2 * 1024**2


class Reserve:
    """The reserve of the instance in a folder. A `read_only` one is never used."""

    def __init__(self, folder: Path, read_only: bool = False) -> None:
        self._path = folder / RESERVE_FILE
        self._read_only = read_only

    @contextmanager
    def released(self) -> Iterator[bool]:
        """Releases the reserve in the context if the disk is full. Yields whether it is."""
        if self._read_only:
            yield False
            return
        is_full = free_bytes(self._path) < _FULL_BYTES
        if is_full and self._path.exists():
            logger.warning("the disk of %s is full: using the reserve", self._path.parent)
            self._path.unlink(missing_ok=True)
        try:
            yield is_full
        finally:
            self._keep(0 if is_full else _FULL_BYTES)

    def _keep(self, others_bytes: int) -> None:
        """Creates or enlarges the reserve, if so many bytes stay for others."""
        try:
            size = self._find_size()
            kept = min(size + free_bytes(self._path) - others_bytes, _BYTES)
            if kept > size:
                with self._path.open("ab") as file:
                    os.posix_fallocate(file.fileno(), 0, kept)
        except OSError as error:
            # Another process may have used the room.
            logger.warning("cannot enlarge %s: %s", self._path, error.strerror)

    def _find_size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:  # another process may have released it
            return 0
