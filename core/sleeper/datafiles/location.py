"""Where an instance's data lies: a local folder or a bucket, and how objects get there."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.exceptions import NotFoundError as ObjectNotFoundError
from obstore.store import LocalStore

from sleeper.errors import NotFoundError, UnavailableError


class DataRoot:
    """The folder below which a local instance keeps its tables' objects.

    Paths are relative to it, as the state store has them. An object appears under its name
    at once, but a data file only counts when it is committed; what was written is on disk,
    not only in the system's cache, when `sink` ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = LocalStore(folder, mkdir=True)

    def url_of(self, path: str) -> str:
        """What DataFusion and Arrow open."""
        return str(self._folder / path)

    @contextlib.contextmanager
    def sink(self, path: str) -> Iterator[Any]:
        """A binary file to write the object to. UnavailableError if the disk refuses.

        Nothing is ever overwritten: it refuses a name that is taken.
        """
        # Whoever only opens an instance does without Arrow, which takes long to load.
        import pyarrow as pa

        target = self._folder / path
        try:
            make_folder(target.parent)
            with target.open("xb") as file, pa.PythonFile(file, mode="w") as sink:
                yield sink
                sink.flush()
                os.fsync(file.fileno())
            sync_folder(target.parent)
        except OSError as error:
            raise UnavailableError(f"cannot write {target}: {error}") from error

    def read(self, path: str) -> bytes:
        """The whole object; NotFoundError if there is none."""
        try:
            return bytes(obstore.get(self.store, path).bytes())
        except (ObjectNotFoundError, FileNotFoundError) as error:
            raise NotFoundError(f"object {path} does not exist") from error
        except (BaseError, OSError) as error:
            raise UnavailableError(f"cannot read object {path}: {error}") from error

    def delete(self, paths: list[str]) -> None:
        """Deletes the objects; those that are gone already are no error.

        Not through the store, which cannot name what its own torn writes leave behind.
        """
        for path in paths:
            try:
                (self._folder / path).unlink(missing_ok=True)
            except OSError as error:
                raise UnavailableError(f"cannot delete {path}: {error}") from error


def make_folder(path: Path) -> None:
    """Makes the folder and those above it, durably. Nothing happens if it is there."""
    try:
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync_folder(made.parent)
    except OSError as error:
        raise UnavailableError(f"cannot make the folder {path}: {error.strerror}") from error


def sync_folder(path: Path) -> None:
    """Makes the folder's list of names durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
