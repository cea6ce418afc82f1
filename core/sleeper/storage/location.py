"""Where an instance's data lies: a local folder or a bucket, and how objects get there."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
from obstore.store import LocalStore, S3Store

from sleeper.errors import UnavailableError
from sleeper.files.data_file import StoredObject
from sleeper.storage.bucket import Bucket, open_bucket
from sleeper.storage.bucket_folder import (
    ObjectFile,
    create_object,
    delete_objects,
    store_errors,
    upload,
    upload_file,
)
from sleeper.storage.disk import make_folder, sync_folder


class DataRoot:
    """The folder, or the bucket, below which an instance keeps its tables' objects.

    Paths are relative to it, as the state store has them. A file appears under its name at
    once, an object of a bucket when it is whole; either way a data file only counts when it
    is committed. What was written is durable when `sink` ends.
    """

    def __init__(self, place: Path | Bucket) -> None:
        self._place = place
        self.store: LocalStore | S3Store
        if isinstance(place, Bucket):
            self.store = open_bucket(place)
        else:
            make_folder(place)  # durably, which the store does not
            self.store = LocalStore(place)

    def __reduce__(self) -> tuple[type["DataRoot"], tuple[Path | Bucket]]:
        """As a task on another machine gets it: it opens its own."""
        return DataRoot, (self._place,)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """What an engine needs to know to read the URLs: the bucket, if it is one."""
        return (self._place,) if isinstance(self._place, Bucket) else ()

    def url_of(self, path: str) -> str:
        """What the engine opens: a file's path, or an object's URL."""
        place = self._place
        return place.url_of(path) if isinstance(place, Bucket) else str(place / path)

    def sink(self, path: str) -> contextlib.AbstractContextManager[Any]:
        """A binary file to write the object to. UnavailableError if disk or store refuse.

        Nothing is ever overwritten: it refuses a name that is taken.
        """
        if isinstance(self.store, S3Store):
            return upload(self.store, path)
        return self._file_sink(path)

    @contextlib.contextmanager
    def place_of(self, path: str, folder: Path) -> Iterator[Path]:
        """Where to write the object as a local file, which replaces the one that is there.

        In a bucket it is put when this ends without an error, from the folder. Whoever writes
        a file of a local root makes it durable.
        """
        if not isinstance(self.store, S3Store):
            with self.sink(path):
                pass  # The name is ours now.
            yield Path(self.url_of(path))
            return
        file = folder / f"upload-{uuid.uuid4().hex}"
        try:
            yield file
            upload_file(self.store, path, file)
        finally:
            file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _file_sink(self, path: str) -> Iterator[Any]:
        # Whoever only opens an instance does without Arrow, which takes long to load.
        import pyarrow as pa

        target = Path(self.url_of(path))
        try:
            make_folder(target.parent)
            with target.open("xb") as file, pa.PythonFile(file, mode="w") as sink:
                yield sink
                # A PythonFile's own flush does nothing.
                file.flush()
                os.fsync(file.fileno())
            sync_folder(target.parent)
        except OSError as error:
            raise UnavailableError(f"cannot write {target}: {error}") from error

    @contextlib.contextmanager
    def replacing(self, path: str) -> Iterator[Any]:
        """A binary file to write what then takes the place of the object, at once and whole.

        For results that have their names from others, and are always the same; data files never.
        """
        if isinstance(self.store, S3Store):
            with upload(self.store, path, replaces=True) as sink:
                yield sink
            return
        with self._unfinished(path) as (unfinished, target):
            with self._file_sink(unfinished) as sink:
                yield sink
            os.replace(self.url_of(unfinished), target)

    def create(self, path: str, content: bytes) -> bool:
        """Makes a small object, unless there is one of that name: then False."""
        if isinstance(self.store, S3Store):
            return create_object(self.store, path, content)
        with self._unfinished(path) as (unfinished, target):
            with self._file_sink(unfinished) as sink:
                sink.write(content)
            try:
                os.link(self.url_of(unfinished), target)
            except FileExistsError:
                return False
        return True

    @contextlib.contextmanager
    def _unfinished(self, path: str) -> Iterator[tuple[str, Path]]:
        """A name beside the file's, and the file; what is left of the first is gone afterwards."""
        target = Path(self.url_of(path))
        unfinished = f"{path}.{uuid.uuid4().hex[:16]}.unfinished"
        try:
            yield unfinished, target
            sync_folder(target.parent)
        except OSError as error:
            raise UnavailableError(f"cannot write {target}: {error}") from error
        finally:
            self.delete([unfinished])

    def read(self, path: str) -> bytes:
        """The whole object; NotFoundError if there is none."""
        with store_errors(path):
            return bytes(obstore.get(self.store, path).bytes())

    def open(self, path: str, size: int | None = None) -> Any:
        """The object as a file for Arrow to read. Its size saves a request if it is known.

        FileNotFoundError, now or at the first read, if there is none.
        """
        import pyarrow as pa

        if isinstance(self.store, S3Store):
            return pa.PythonFile(ObjectFile(self.store, path, size), mode="r")
        return pa.OSFile(self.url_of(path))

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        """All objects below a folder of the root, in no order."""
        if not isinstance(self.store, S3Store):
            yield from self._list_files(folder)
            return
        with store_errors(folder):
            for page in obstore.list(self.store, prefix=folder):
                for found in page:
                    modified_ms = round(found["last_modified"].timestamp() * 1000)
                    yield StoredObject(found["path"], found["size"], modified_ms)

    def _list_files(self, folder: str) -> Iterator[StoredObject]:
        root = Path(self.url_of(""))
        for path in (root / folder).rglob("*"):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file():
                modified_ms = found.st_mtime_ns // 1_000_000
                yield StoredObject(path.relative_to(root).as_posix(), found.st_size, modified_ms)

    def delete(self, paths: list[str]) -> None:
        """Deletes the objects; those that are gone already are no error.

        Files not through the store, which cannot name what its own torn writes leave behind.
        """
        if isinstance(self.store, S3Store):
            delete_objects(self.store, paths)
            return
        for path in paths:
            try:
                Path(self.url_of(path)).unlink(missing_ok=True)
            except OSError as error:
                raise UnavailableError(f"cannot delete {path}: {error}") from error
