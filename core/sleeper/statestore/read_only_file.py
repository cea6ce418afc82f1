"""SQLite files that this process may not write, or that were opened read-only.

SQLite in WAL mode writes even to read: it creates a -wal and a -shm file, or marks its place in the
-shm file. A database that another process has open has both files, and `readonly_shm` reads them as
they are. Without a -wal file nobody has changes that are not in the database itself, which is then
read as immutable, without locks.
"""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sleeper.errors import NotFoundError, UnavailableError


@dataclass(frozen=True, slots=True)
class FrozenFile:
    """A database file opened as immutable, with its modification stamp."""

    path: Path
    stamp: tuple[int, int, int]

    def check_unchanged(self) -> None:
        """Raises UnavailableError if another process has changed the file."""
        if _stamp(self.path) != self.stamp:
            raise UnavailableError(f"{self.path} changed while it was read: try again")


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def is_writable(path: Path) -> bool:
    """Returns whether this process may write the database and the files beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def find_read_only_source(path: Path, is_required: bool) -> tuple[str, FrozenFile | None] | None:
    """Returns the URI for reading a database in a read-only folder.

    None if this process may write there, or the file does not exist, unless it `is_required`: then
    nothing in the folder changes, and NotFoundError if the file does not exist. UnavailableError if
    the database cannot be read without a change of the folder.
    """
    if not path.exists():
        if is_required:
            raise NotFoundError(f"{path} does not exist")
        return None
    if not is_required and is_writable(path):
        return None
    uri = f"file:{quote(str(path))}"
    if not _has_content(path.with_name(f"{path.name}-wal")):
        return f"{uri}?immutable=1", FrozenFile(path, _stamp(path))
    if not path.with_name(f"{path.name}-shm").exists():
        raise UnavailableError(
            f"{path} cannot be read without write access: its -shm file is missing, but its -wal "
            "file has changes (expected the files of an instance that is in use or was closed: "
            "open it once with write access)"
        )
    return f"{uri}?mode=ro&readonly_shm=1", None


def cannot_create_wal(error: sqlite3.OperationalError) -> bool:
    """Returns whether SQLite failed to create the -wal and -shm files, which readers need too."""
    return error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN"))


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
