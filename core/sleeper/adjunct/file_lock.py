"""Locks on files, which the system releases when the process ends."""

import errno
import fcntl
import os
from pathlib import Path

from sleeper.errors import NotFoundError, UnavailableError


class FileLock:
    """A lock on a file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Releases the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_file(path: Path, is_shared: bool = False) -> FileLock | None:
    """Locks a file, which is created if missing. None if another process has locked it.

    Shared locks exclude only exclusive ones. NotFoundError if there is no such folder,
    UnavailableError if the file system has no locks.
    """
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError as error:
        raise NotFoundError(f"no folder {path.parent}") from error
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise UnavailableError(f"cannot open {path}: {error.strerror}") from error
        descriptor = _open_to_read(path)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise UnavailableError(
            f"cannot lock {path}: {error.strerror} (expected a file system with locks, such as a "
            "local one)"
        ) from error
    return FileLock(path, descriptor)


def _open_to_read(path: Path) -> int:
    """Opens a lock of a folder in which this process may not write."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFoundError(f"no file {path}") from error
    except OSError as error:
        raise UnavailableError(f"cannot open {path}: {error.strerror}") from error
