"""A shim around SQLite's access to the disk: faults, power failures, virtual time, a seed.

The shim is SQLite's default VFS from the first use on. It leaves files outside a simulated disk
alone. The struct of an open file stays the library's own; only its table of methods is replaced, by
one with our functions for writes, truncations, synchronisations and locks. A *handle* is our record
of an open file. The files of a *dead* process release their locks and refuse every operation.

SQLite calls these functions with a mutex of the connection, so no other thread may use a connection
that is in a call.
"""

import atexit
import ctypes
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec

from simulation.calls import Fault
from simulation.disk import sqlite_library as c
from simulation.disk.content import SECTOR_BYTES, Content
from simulation.disk.hooks import DiskHooks
from simulation.disk.image import Image
from simulation.scheduling.patching import shared_cache

P = ParamSpec("P")

# SQLite counts from noon of 24 November 4714 BC.
_EPOCH_MS = 210_866_760_000_000
_DAY_MS = 86_400_000


@dataclass(slots=True)
class _Handle:
    disk: "SqliteDisk"
    path: str
    process: Hashable
    descriptor: int
    content: Content
    methods: c.Methods
    syncs_folder: bool
    is_dead: bool = False
    shm_locks: set[tuple[int, int, int]] = field(default_factory=set)

    def refusal(self, operation: str, code: int) -> int:
        """Returns the error of an operation, OK if there is none."""
        if self.is_dead:
            return code
        fault = self.disk.hooks.before(operation, self.path)
        if self.is_dead:
            return code
        if fault is Fault.FULL and operation in ("write", "truncate"):
            return c.FULL
        return c.OK if fault is None else code

    def note_change(self, offset: int, end: int | None = None) -> None:
        """Records the content of a range before it changes, without an end up to that of file."""
        size = os.fstat(self.descriptor).st_size
        start = offset - offset % SECTOR_BYTES
        stop = size if end is None else -(-end // SECTOR_BYTES) * SECTOR_BYTES
        older = os.pread(self.descriptor, max(stop - start, 0), start)
        self.content.changes(start, older, size)


class SqliteDisk:
    """The SQLite files of a disk that are open."""

    def __init__(self, image: Image, hooks: DiskHooks) -> None:
        self.image = image
        self.hooks = hooks
        self.errors: list[Exception] = []

    def activate(self) -> None:
        """Makes later calls of SQLite use this disk, and seeds SQLite's random numbers."""
        shim = _shim()
        shim.disk = self
        shim.library.sqlite3_randomness(0, None)

    def deactivate(self) -> None:
        """Gives SQLite back the real disk. Files that are open stay simulated."""
        shim = _shim()
        if shim.disk is self:
            shim.disk = None
            shim.library.sqlite3_randomness(0, None)

    def end(self, process: Hashable) -> None:
        """Releases the locks of a process, whose open files refuse every later operation."""
        self._end(lambda handle: handle.process == process)

    def end_all(self) -> None:
        """Ends all processes."""
        self._end(lambda _: True)

    def _end(self, is_ending: Callable[[_Handle], bool]) -> None:
        shim = _shim()
        for address, handle in list(shim.handles.items()):
            if handle.disk is self and not handle.is_dead and is_ending(handle):
                shim.end(address, handle)


def _guarded(code: int) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Makes a function return an error code for an exception, which C code cannot propagate.

    The world's own exceptions end a process, so SQLite sees a failed operation.
    """

    def decorate(function: Callable[P, int]) -> Callable[P, int]:
        @wraps(function)
        def guarded(*arguments: P.args, **more: P.kwargs) -> int:
            try:
                return function(*arguments, **more)
            except Exception as error:
                disk = _shim().disk
                if disk is not None:
                    disk.errors.append(error)
                return code
            except BaseException:
                return code

        return guarded

    return decorate


@shared_cache
def _shim() -> "_Shim":
    """Returns the shim, which is never unregistered because open connections refer to it."""
    shim = _Shim()
    # Python closes the last connections after it has freed its modules.
    atexit.register(shim.restore)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(shim))
    return shim


class _Shim:
    """The VFS, and the tables of methods."""

    def __init__(self) -> None:
        self.disk: SqliteDisk | None = None
        self.handles: dict[int, _Handle] = {}
        self.library = c.load_library()
        self._original = self.library.sqlite3_vfs_find(None)
        # The tables must not be freed, so they stay in these.
        self._methods: dict[int, tuple[c.Methods, c.Methods, c.Methods]] = {}
        self.vfs = c.Vfs.from_buffer_copy(self._original.contents)
        self.vfs.zName = b"simulated-disk"
        self.vfs.xOpen = c.OpenFunction(self._open)
        self.vfs.xDelete = c.DeleteFunction(self._delete)
        self.vfs.xRandomness = c.RandomnessFunction(self._randomness)
        self.vfs.xSleep = c.SleepFunction(self._sleep)
        self.vfs.xCurrentTime = c.TimeFunction(self._current_time)
        self.vfs.xCurrentTimeInt64 = c.TimeInt64Function(self._current_time_int64)
        self.library.sqlite3_vfs_register(ctypes.byref(self.vfs), 1)

    def restore(self) -> None:
        """Makes the VFS and the open files call the library's functions only."""
        ctypes.memmove(ctypes.byref(self.vfs), self._original, ctypes.sizeof(c.Vfs))
        for address, handle in self.handles.items():
            c.File.from_address(address).pMethods = ctypes.pointer(handle.methods)

    # -- the VFS

    @_guarded(c.CANTOPEN)
    def _open(self, _vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        original = self._original.contents.xOpen
        path = ctypes.string_at(name).decode() if name else ""
        disk = self.disk
        if disk is None or not disk.image.contains(path):
            return int(original(self._original, name, file, flags, out))
        if flags & c.OPEN_CREATE and disk.hooks.before("open", path) is not None:
            return c.CANTOPEN
        code = int(original(self._original, name, file, flags, out))
        if code == c.OK:
            head = c.File.from_address(file)
            methods, living, _ = self._tables(head)
            descriptor = os.open(path, os.O_RDONLY)
            self.handles[file] = _Handle(
                disk,
                path,
                disk.hooks.process(),
                descriptor,
                disk.image.content(os.fstat(descriptor).st_ino),
                methods,
                bool(flags & c.OPEN_CREATE and flags & c.OPEN_JOURNALS),
            )
            head.pMethods = ctypes.pointer(living)
        return code

    @_guarded(c.IOERR_DELETE)
    def _delete(self, _vfs: int, name: int, syncs_folder: int) -> int:
        path = ctypes.string_at(name).decode()
        disk = self.disk
        is_inside = disk is not None and disk.image.contains(path)
        if is_inside and disk is not None and disk.hooks.before("delete", path) is not None:
            return c.IOERR_DELETE
        code = int(self._original.contents.xDelete(self._original, name, syncs_folder))
        if is_inside and disk is not None and code == c.OK and syncs_folder:
            disk.image.sync_folder(os.path.dirname(path))
        return code

    @_guarded(0)
    def _randomness(self, _vfs: int, count: int, buffer: int) -> int:
        if self.disk is None:
            return int(self._original.contents.xRandomness(self._original, count, buffer))
        ctypes.memmove(buffer, self.disk.hooks.random(count), count)
        return count

    @_guarded(0)
    def _sleep(self, _vfs: int, microseconds: int) -> int:
        if self.disk is None:
            return int(self._original.contents.xSleep(self._original, microseconds))
        self.disk.hooks.sleep(microseconds / 1e6)
        return microseconds

    @_guarded(c.IOERR)
    def _current_time(self, _vfs: int, result: "ctypes._Pointer[ctypes.c_double]") -> int:
        if self.disk is None:
            return int(self._original.contents.xCurrentTime(self._original, result))
        result[0] = (self.disk.hooks.now_ms() + _EPOCH_MS) / _DAY_MS
        return c.OK

    @_guarded(c.IOERR)
    def _current_time_int64(self, _vfs: int, result: "ctypes._Pointer[ctypes.c_int64]") -> int:
        if self.disk is None:
            return int(self._original.contents.xCurrentTimeInt64(self._original, result))
        result[0] = self.disk.hooks.now_ms() + _EPOCH_MS
        return c.OK

    # -- open files

    def end(self, address: int, handle: _Handle) -> None:
        """Releases the locks of an open file, and makes it refuse every operation."""
        for offset, count, kind in sorted(handle.shm_locks):
            handle.methods.xShmLock(address, offset, count, c.SHM_UNLOCK | kind)
        handle.methods.xUnlock(address, c.LOCK_NONE)
        handle.is_dead = True
        head = c.File.from_address(address)
        head.pMethods = ctypes.pointer(self._dead_table(handle.methods))

    def _tables(self, head: c.File) -> tuple[c.Methods, c.Methods, c.Methods]:
        """Returns the methods of an open file: the library's, ours, and those of a dead process."""
        address = ctypes.addressof(head.pMethods.contents)
        if address not in self._methods:
            original = head.pMethods.contents
            living = c.Methods.from_buffer_copy(original)
            living.xClose = c.FileFunction(self._close)
            living.xWrite = c.TransferFunction(self._write)
            living.xTruncate = c.TruncateFunction(self._truncate)
            living.xSync = c.FileIntFunction(self._sync)
            living.xLock = c.FileIntFunction(self._lock)
            living.xShmLock = c.ShmLockFunction(self._shm_lock)
            dead = c.Methods.from_buffer_copy(living)
            dead.xRead = c.TransferFunction(lambda *_: c.IOERR_READ)
            dead.xFileSize = c.FilePointerFunction(lambda *_: c.IOERR)
            dead.xUnlock = c.FileIntFunction(lambda *_: c.OK)
            dead.xShmMap = c.ShmMapFunction(lambda *_: c.IOERR)
            self._methods[address] = original, living, dead
        return self._methods[address]

    def _dead_table(self, original: c.Methods) -> c.Methods:
        return self._methods[ctypes.addressof(original)][2]

    @_guarded(c.IOERR)
    def _close(self, file: int) -> int:
        handle = self.handles.pop(file)
        os.close(handle.descriptor)
        return int(handle.methods.xClose(file))

    @_guarded(c.IOERR_WRITE)
    def _write(self, file: int, buffer: int, count: int, offset: int) -> int:
        handle = self.handles[file]
        code = handle.refusal("write", c.IOERR_WRITE)
        if code != c.OK:
            return code
        handle.note_change(offset, offset + count)
        return int(handle.methods.xWrite(file, buffer, count, offset))

    @_guarded(c.IOERR_TRUNCATE)
    def _truncate(self, file: int, size: int) -> int:
        handle = self.handles[file]
        code = handle.refusal("truncate", c.IOERR_TRUNCATE)
        if code != c.OK:
            return code
        handle.note_change(size)
        return int(handle.methods.xTruncate(file, size))

    @_guarded(c.IOERR_FSYNC)
    def _sync(self, file: int, _flags: int) -> int:
        handle = self.handles[file]
        code = handle.refusal("sync", c.IOERR_FSYNC)
        if code != c.OK:
            return code
        handle.content.synced(os.fstat(handle.descriptor).st_size)
        if handle.syncs_folder:
            # As the library does it for a new journal.
            handle.syncs_folder = False
            folder = os.path.dirname(handle.path)
            if os.path.isdir(folder):  # the library ignores that a program has deleted it
                handle.disk.image.sync_folder(folder)
        return c.OK

    @_guarded(c.IOERR_LOCK)
    def _lock(self, file: int, level: int) -> int:
        handle = self.handles[file]
        is_write = level >= c.LOCK_RESERVED
        code = handle.refusal("lock", c.IOERR_LOCK) if is_write else c.IOERR_LOCK * handle.is_dead
        return code or int(handle.methods.xLock(file, level))

    @_guarded(c.IOERR_SHMLOCK)
    def _shm_lock(self, file: int, offset: int, count: int, flags: int) -> int:
        handle = self.handles[file]
        kind = flags & (c.SHM_SHARED | c.SHM_EXCLUSIVE)
        lock = offset, count, kind
        if flags & c.SHM_UNLOCK:
            handle.shm_locks.discard(lock)
            return c.OK if handle.is_dead else int(self._shm(handle, file, lock, c.SHM_UNLOCK))
        if kind == c.SHM_EXCLUSIVE:
            code = handle.refusal("lock", c.IOERR_SHMLOCK)
        else:
            code = c.IOERR_SHMLOCK * handle.is_dead
        code = code or self._shm(handle, file, lock, c.SHM_LOCK)
        if code == c.OK:
            handle.shm_locks.add(lock)
        return code

    def _shm(self, handle: _Handle, file: int, lock: tuple[int, int, int], action: int) -> int:
        offset, count, kind = lock
        return int(handle.methods.xShmLock(file, offset, count, action | kind))
