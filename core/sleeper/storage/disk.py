"""Durable files and folders on a local disk.

A file survives a power failure when its content was synchronized, and after that the folder
that lists its name. A buffer of the program itself must be flushed before either.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sleeper.errors import UnavailableError

# Folders that this process has made, and whose names are not durable.
_unsynced: set[Path] = set()


def make_folder(path: Path) -> None:
    """Creates the folder and its parents, durably. Does nothing if it exists."""
    try:
        if path not in _unsynced and path.is_dir():
            return  # Small files are written often.
        missing = [p for p in (path, *path.parents) if p in _unsynced or not p.exists()]
        # If the disk fails, a folder exists that the next call must still make durable.
        _unsynced.update(missing)
        path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync_folder(made.parent)
        _unsynced.difference_update(missing)
    except OSError as error:
        raise UnavailableError(f"cannot create folder {path}: {error.strerror}") from error


def create_file(path: Path, content: bytes) -> None:
    """Creates a file of durable content. The caller makes its final name durable."""
    make_folder(path.parent)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing_file(target: Path, unfinished: Path) -> Iterator[Path]:
    """Yields `unfinished`, to write the content that replaces the target at the end, durably.

    The target is never visible without its whole content. OSError if the disk fails.
    """
    try:
        yield unfinished
        _sync(unfinished)
        os.replace(unfinished, target)
        sync_folder(target.parent)
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
    if not paths:
        return
    first, *others = paths
    started = [_sync_threads().submit(_sync, path) for path in others]
    try:
        _sync(first)
    finally:
        # All have ended when this returns, so that the caller may delete the files.
        errors = [each.exception() for each in started]
    for error in errors:
        if error is not None:
            raise error
    for folder in dict.fromkeys(path.parent for path in paths):
        sync_folder(folder)


_SYNC_THREADS = 8


@cache
def _sync_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_SYNC_THREADS, "file-sync")


# A forked process has no threads.
os.register_at_fork(after_in_child=_sync_threads.cache_clear)


def sync_folder(path: Path) -> None:
    """Makes the folder's list of names durable."""
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
