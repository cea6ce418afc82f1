"""Durable files and folders on a local disk.

A file survives a power failure when its content was synchronized, and after that the folder
that lists its name. A buffer of the program itself must be flushed before either.
"""

import os
from pathlib import Path

from sleeper.errors import UnavailableError


def make_folder(path: Path) -> None:
    """Creates the folder and its parents, durably. Does nothing if it exists."""
    try:
        if path.is_dir():
            return  # Small files are written often.
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync_folder(made.parent)
    except OSError as error:
        raise UnavailableError(f"cannot create folder {path}: {error.strerror}") from error


def sync_file(path: Path) -> None:
    """Makes a closed file's content durable, and its name."""
    _sync(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the folder's list of names durable."""
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
