"""Durable files and folders on a local disk, their replacement, and locks on files.

A file survives a power failure when its content was synchronized, and after that the folder
that lists its name. A buffer of the program itself must be flushed before either.

The system releases a lock when its descriptor is closed, at the latest when the process ends.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from sleeper.errors import NotFoundError, UnavailableError, describe_error

_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNSYNCHRONISABLE = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EROFS)
# Other users may not write a file, whatever the umask is.
_OWN_MODE = 0o644

# The inodes of folders whose names this process has made durable, and those of their parents.
_durable: dict[str, int] = {}
_DURABLE_MAX = 10_000


def make_folder(path: Path) -> None:
    """Creates the folder and its parents, durably.

    A process that died may have created some of them, without the synchronisation.
    """
    try:
        if _is_durable(path):
            return  # Small files are written often.
        missing = [p for p in (path, *path.parents) if not p.exists()]
        for folder in missing:
            # A new folder may have the inode of the one that was deleted.
            _durable.pop(str(folder), None)
        path.mkdir(parents=True, exist_ok=True)
        _sync_names(path, missing)
    except OSError as error:
        raise UnavailableError(f"cannot create folder {path}: {error.strerror}") from error


def _is_durable(folder: Path) -> bool:
    inode = _durable.get(str(folder))
    try:
        return inode is not None and folder.stat().st_ino == inode
    except FileNotFoundError:
        return False


def _sync_names(path: Path, missing: Sequence[Path]) -> None:
    """Makes the names of a folder and of its parents durable, unless this process did before.

    Folders that were not missing may be in one that this process may not read, or whose file system
    synchronises no folders.
    """
    unsynced = []
    for folder in (path, *path.parents):
        if _is_durable(folder) or os.path.ismount(folder):
            break
        unsynced.append(folder)
    if len(_durable) > _DURABLE_MAX:
        _durable.clear()
    for folder in reversed(unsynced):
        inode = folder.stat().st_ino
        try:
            sync_folder(folder.parent)
        except OSError as error:
            if folder in missing or error.errno not in _UNSYNCHRONISABLE:
                raise
        _durable[str(folder)] = inode


def create_file(path: Path, content: bytes) -> None:
    """Creates a file of durable content. The caller makes its final name durable."""
    make_folder(path.parent)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing_file(target: Path, unfinished: Path) -> Iterator[Path]:
    """Yields `unfinished`, to write the content that replaces the target at the end, durably.

    The target is never visible without its whole content. OSError if the disk fails.
    """
    try:
        yield unfinished
        replace_file(target, unfinished)
    finally:
        unfinished.unlink(missing_ok=True)


def replace_file(target: Path, file: Path) -> None:
    """Gives a closed file the name of another, which it replaces durably if that exists."""
    _sync(file)
    os.replace(file, target)
    sync_folder(target.parent)


def create_whole_file(target: Path, content: bytes, unfinished: Path) -> bool:
    """Creates a durable file, never visible without its content. False if the name is taken."""
    try:
        create_file(unfinished, content)
        try:
            os.link(unfinished, target)
        except FileExistsError:
            return False
        finally:
            # The process that created the file may not have synchronized its name.
            sync_folder(target.parent)
        return True
    finally:
        unfinished.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Makes a closed file's content durable, and its name."""
    _sync(path)
    sync_folder(path.parent)


def sync_files(paths: Sequence[Path]) -> None:
    """Makes the content of closed files durable, and then their names.

    The disk syncs several files at once in hardly more time than one, but not one after another.
    """
    _sync_all(paths, _sync)
    for folder in dict.fromkeys(path.parent for path in paths):
        sync_folder(folder)


def delete_durably(paths: Iterable[Path]) -> None:
    """Deletes files, which a power failure does not bring back. Missing files are no error.

    A marker that tells what other files are is deleted before them, by a call of its own.
    """
    folders = set()
    for path in paths:
        path.unlink(missing_ok=True)
        # An earlier call may have ended before its sync, so this does not depend on the file.
        folders.add(path.parent)
    _sync_all(list(folders), _sync_if_exists)


def delete_folder_durably(path: Path) -> None:
    """Deletes a folder with its content, durably. A missing one is no error."""
    if path.exists():
        shutil.rmtree(path)
    _sync_if_exists(path.parent)


def delete_empty_folders(path: Path) -> None:
    """Deletes a folder and those below it, durably, if they are empty."""
    for name, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(name)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise
            _sync_if_exists(Path(name))
    _sync_if_exists(path.parent)


_SYNC_THREADS = 8


@cache
def _sync_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_SYNC_THREADS, "file-sync")


# A forked process has no threads.
os.register_at_fork(after_in_child=_sync_threads.cache_clear)


def sync_folder(path: Path) -> None:
    """Makes the folder's list of names durable."""
    _sync(path)


def _sync_all(paths: Sequence[Path], sync: Callable[[Path], None]) -> None:
    """Syncs files or folders at the same time. All have ended when it returns or raises."""
    if not paths:
        return
    first, *others = paths
    started = [_sync_threads().submit(sync, path) for path in others]
    try:
        sync(first)
    finally:
        # The caller may delete the files then.
        errors = [each.exception() for each in started]
    for error in errors:
        if error is not None:
            raise error


def _sync_if_exists(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process has deleted it
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def free_bytes(path: Path) -> int:
    """Returns the free bytes of the disk on which a file or folder is, or would be."""
    while not path.exists():
        path = path.parent
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def describe_full_disk(path: Path) -> str:
    """Returns the reason of a write that found no space."""
    return f"No space left on device (disk full, {free_bytes(path):,} bytes free)"


def describe_write_error(path: Path, error: OSError) -> str:
    """Returns the reason of a write that failed, with the free space if the disk is full."""
    # Arrow's errors have a number in their text only.
    if error.errno in _FULL or "No space left" in str(error):
        return describe_full_disk(path)
    return describe_error(error)


def write_error(path: Path, error: OSError) -> UnavailableError:
    """Returns the error of a write that failed."""
    return UnavailableError(f"cannot write {path}: {describe_write_error(path, error)}")


class FileLock:
    """A held lock on a file."""

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
    try:
        descriptor = open_lock(path, _OWN_MODE)
    except FileNotFoundError as error:
        raise NotFoundError(f"no folder {path.parent}") from error
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise UnavailableError(f"cannot open {path}: {error.strerror}") from error
        descriptor = _open_to_read(path)
    try:
        is_locked = try_lock(descriptor, is_shared)
    except OSError as error:
        os.close(descriptor)
        raise UnavailableError(
            f"cannot lock {path}: {error.strerror} (expected a file system with locks, such as a "
            "local one)"
        ) from error
    if not is_locked:
        os.close(descriptor)
        return None
    return FileLock(path, descriptor)


@contextlib.contextmanager
def locking_file(path: Path) -> Iterator[int]:
    """Waits for the lock on a file, which is created if missing. Yields its descriptor."""
    descriptor = open_lock(path, _OWN_MODE)
    try:
        wait_for_lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def open_lock(path: Path, mode: int = 0o666) -> int:
    """Opens a file to lock it, which is created with the mode if missing."""
    return os.open(path, os.O_RDWR | os.O_CREAT, mode)


def try_lock(descriptor: int, is_shared: bool = False) -> bool:
    """Locks an open file. False if another process has locked it."""
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int) -> None:
    """Locks an open file when other processes have released it, in the order of their waits."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def unlock(descriptor: int) -> None:
    """Releases the lock of an open file."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _open_to_read(path: Path) -> int:
    """Opens a lock of a folder in which this process may not write."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise NotFoundError(f"no file {path}") from error
    except OSError as error:
        raise UnavailableError(f"cannot open {path}: {error.strerror}") from error


_WAIT_BEFORE = 1


def check_written(path: Path) -> None:
    """Raises OSError if the disk refused what the system wrote of a file that nobody syncs.

    The system writes such a file when it needs the memory. If the disk fails, it drops the content,
    so that a later read returns other content. Starts no write.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _sync_file_range()(descriptor, 0, 0, _WAIT_BEFORE):
            number = ctypes.get_errno()
            if number != errno.ENOSYS:
                raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    result: Callable[[int, int, int, int], int] = call
    return result
