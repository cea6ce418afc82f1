"""A folder on this machine's disk that one process has for itself, and the next one after it.

Processes that run side by side take folders `0`, `1`, … below one parent, each by a lock that
the kernel lets go when its process ends, however that is. So what a process kept there is
found by the next: a command by the command after it, a lambda by itself when it is warm.
"""

import fcntl
import os
import shutil
import stat
import threading
from pathlib import Path

from sleeper.errors import UnavailableError

_LOCK_FILE = "lock"
_SPILL_FOLDER = "spill"


class ProcessFolder:
    """Takes a folder when it is first asked for one. Safe for threads; not for forks."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._taking = threading.Lock()
        self._folder: Path | None = None
        self._lock_file: int | None = None

    def path(self) -> Path:
        """The folder. UnavailableError if none can be had."""
        with self._taking:
            if self._folder is None:
                try:
                    self._folder, self._lock_file = _take(self._parent)
                except OSError as error:
                    raise UnavailableError(f"{self._parent}: {error}") from error
            return self._folder

    def close(self) -> None:
        """Leaves the folder to the next process."""
        with self._taking:
            if self._folder is not None and self._lock_file is not None:
                shutil.rmtree(self._folder / _SPILL_FOLDER, ignore_errors=True)
                os.close(self._lock_file)
            self._folder = self._lock_file = None

    def spill(self) -> Path:
        """A folder in it for what is of no use to another process."""
        folder = self.path() / _SPILL_FOLDER
        folder.mkdir(exist_ok=True)
        return folder


def own_folder(folder: Path) -> Path:
    """Makes the folder for this user alone, where others may make folders too.

    UnavailableError if one of that name is another user's, who could put anything there.
    """
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise UnavailableError(f"{folder}: {error}") from error
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise UnavailableError(f"{folder} is not a folder of this user alone: name another place")
    return folder


def _take(parent: Path) -> tuple[Path, int]:
    parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        folder = parent / str(number)
        folder.mkdir(exist_ok=True)
        file = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            number += 1
            continue
        # Of a process that was killed.
        shutil.rmtree(folder / _SPILL_FOLDER, ignore_errors=True)
        return folder, file
