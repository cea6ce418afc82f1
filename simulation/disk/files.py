"""Python's access to the files of a disk: faults, synchronisation, virtual times, a stable order.

Python reports each operation on a name to an *audit hook* before it happens, so a hook can refuse
it. What libraries of native code write is not reported, and neither is a write to an open file:
such content survives a power failure only by chance until a synchronisation. The functions that
synchronise, lock, list and stat are replaced in their modules.

A file's modification time is virtual: that of its first synchronisation or `stat` since its change.
"""

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Hashable, Iterator
from types import TracebackType
from typing import Any

from simulation.calls import Fault
from simulation.disk.hooks import DiskHooks
from simulation.disk.image import Image
from simulation.scheduling.patching import shared_cache

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_POLL_SECONDS_FIRST = 0.005
_POLL_SECONDS_MAX = 0.1
_NEEDING_SPACE = ("create", "link", "rename", "make folder")


class FileDisk:
    """The files of a disk as Python's functions see them."""

    def __init__(self, image: Image, hooks: DiskHooks) -> None:
        self._image = image
        self._hooks = hooks
        self._stamps: dict[int, int] = {}
        self._locks: dict[int, tuple[Hashable, int]] = {}
        self._ours: dict[str, Callable[..., Any]] = {
            "fsync": self._fsync,
            "listdir": self._listdir,
            "scandir": self._scandir,
            "stat": self._stat,
        }
        self._real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in self._ours}
        self._real_flock = fcntl.flock

    def activate(self) -> None:
        """Replaces the functions."""
        self._remember_stamps()
        _audit().disk = self
        for name, function in self._ours.items():
            setattr(os, name, function)
        fcntl.flock = self._flock

    def deactivate(self) -> None:
        """Restores the functions."""
        _audit().disk = None
        for name, function in self._real.items():
            setattr(os, name, function)
        fcntl.flock = self._real_flock

    def end(self, process: Hashable) -> None:
        """Releases the locks of a process."""
        for descriptor, (owner, inode) in list(self._locks.items()):
            if owner == process:
                self._release(descriptor, inode)
        self._stamp_all()

    def lose_power(self, change: Callable[[], None]) -> None:
        """Ends all processes while the disk changes by itself."""
        for descriptor, (_, inode) in list(self._locks.items()):
            self._release(descriptor, inode)
        self._stamp_all()
        self.deactivate()
        change()
        self.activate()

    # -- names

    def check(self, operation: str, path: str) -> None:
        """Raises the error of an operation that the world refuses."""
        _raise_fault(self._hooks.before(operation, path), operation, path)

    def open(self, path: str, flags: int) -> None:
        """Records the content that a program opens to change."""
        is_new = not os.path.lexists(path)
        self.check("create" if is_new else "open", path)
        if is_new or flags & (os.O_EXCL | os.O_APPEND):
            return
        self.truncate(path)

    def truncate(self, path: str) -> None:
        """Records the content of a file before it changes."""
        status = self._real["stat"](path)
        if stat.S_ISREG(status.st_mode) and status.st_size:
            with open(path, "rb") as file:
                self._image.content(status.st_ino).changes(0, file.read(), status.st_size)

    def contains(self, path: str) -> bool:
        """Returns whether a path is on the disk."""
        return self._image.contains(path)

    # -- the replaced functions

    def _fsync(self, file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        path = _path_of(descriptor)
        if not self._image.contains(path):
            self._real["fsync"](descriptor)
            return
        self.check("sync", path)
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            if status.st_nlink:
                self._image.sync_folder(path)
            return
        self._image.content(status.st_ino).synced(status.st_size)
        self._stamp(descriptor, status)

    def _flock(self, file: Any, operation: int) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        path = _path_of(descriptor)
        if not self._image.contains(path) or operation & fcntl.LOCK_UN:
            self._real_flock(descriptor, operation)
            return
        self.check("lock", path)
        seconds = _POLL_SECONDS_FIRST
        while True:
            try:
                self._real_flock(descriptor, operation | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if operation & fcntl.LOCK_NB:
                    raise
            self._hooks.sleep(seconds)
            seconds = min(2 * seconds, _POLL_SECONDS_MAX)
        self._locks[descriptor] = self._hooks.process(), os.fstat(descriptor).st_ino

    def _listdir(self, path: Any = ".") -> list[Any]:
        return sorted(self._real["listdir"](path))

    def _scandir(self, path: Any = ".") -> "_Entries":
        with self._real["scandir"](path) as entries:
            return _Entries(sorted(entries, key=lambda entry: entry.name))

    def _stat(self, path: Any, **options: Any) -> os.stat_result:
        status: os.stat_result = self._real["stat"](path, **options)
        if isinstance(path, int) or options.get("dir_fd") is not None:
            return status
        if self._stamps.get(status.st_ino) == status.st_mtime_ns:
            return status
        absolute = os.path.abspath(os.fsdecode(path))
        if not self._image.contains(absolute) or stat.S_ISLNK(status.st_mode):
            return status
        self._stamp(absolute, status)
        stamped: os.stat_result = self._real["stat"](path, **options)
        return stamped

    # -- modification times

    def _stamp(self, file: int | str, status: os.stat_result) -> None:
        """Gives a file that has changed the virtual time."""
        if self._stamps.get(status.st_ino) != status.st_mtime_ns:
            modified_ns = self._hooks.now_ms() * 1_000_000
            os.utime(file, ns=(modified_ns, modified_ns))
            self._stamps[status.st_ino] = modified_ns

    def _stamp_all(self) -> None:
        for path, status in self._all():
            self._stamp(path, status)

    def _remember_stamps(self) -> None:
        self._stamps = {status.st_ino: status.st_mtime_ns for _, status in self._all()}

    def _all(self) -> Iterator[tuple[str, os.stat_result]]:
        for folder, _, names in os.walk(self._image.folder):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                yield path, os.lstat(path)

    def _release(self, descriptor: int, inode: int) -> None:
        """Releases a lock unless its file was closed. Its number may belong to another file."""
        del self._locks[descriptor]
        try:
            if os.fstat(descriptor).st_ino == inode:
                self._real_flock(descriptor, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise


class _Entries:
    """The sorted entries of a folder, as `os.scandir` gives them."""

    def __init__(self, entries: list[os.DirEntry[Any]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> "_Entries":
        return self

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class _Audit:
    """The audit hook, which can never be removed."""

    def __init__(self) -> None:
        self.disk: FileDisk | None = None
        self._operations: dict[str, Callable[[FileDisk, Any], None]] = {
            "open": self._open,
            "os.remove": lambda disk, a: self._check(disk, "delete", a[0], a[1]),
            "os.rename": lambda disk, a: self._check(disk, "rename", a[1], a[3]),
            "os.link": lambda disk, a: self._check(disk, "link", a[1], a[3]),
            "os.mkdir": lambda disk, a: self._check(disk, "make folder", a[0], a[2]),
            "os.rmdir": lambda disk, a: self._check(disk, "delete folder", a[0], a[1]),
            "os.truncate": self._truncate,
        }
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.disk is not None:
            operation = self._operations.get(event)
            if operation is not None:
                operation(self.disk, arguments)

    def _open(self, disk: FileDisk, arguments: Any) -> None:
        path, _, flags = arguments
        if flags & _WRITE_FLAGS and not isinstance(path, int):
            absolute = _absolute(path, -1)
            if disk.contains(absolute):
                disk.open(absolute, flags)

    def _truncate(self, disk: FileDisk, arguments: Any) -> None:
        path = arguments[0]
        absolute = _path_of(path) if isinstance(path, int) else _absolute(path, -1)
        if disk.contains(absolute):
            disk.check("truncate", absolute)
            disk.truncate(absolute)

    def _check(self, disk: FileDisk, operation: str, path: Any, folder: int) -> None:
        absolute = _absolute(path, folder)
        if disk.contains(absolute):
            disk.check(operation, absolute)


@shared_cache
def _audit() -> _Audit:
    return _Audit()


def _absolute(path: Any, folder: int) -> str:
    name = os.fsdecode(path)
    if folder != -1 and not os.path.isabs(name):
        name = os.path.join(_path_of(folder), name)
    return os.path.abspath(name)


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _raise_fault(fault: Fault | None, operation: str, path: str) -> None:
    if fault is Fault.FULL and operation in _NEEDING_SPACE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    if fault is not None and fault is not Fault.FULL:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)
