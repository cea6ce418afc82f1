"""The location of an instance's data: a local folder or a bucket. Loads no data library."""

import contextlib
import io
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from obstore.store import LocalStore, S3Store

from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.files import StoredObject
from sleeper.storage.bucket import Bucket, is_s3_url, open_bucket, split_s3_url
from sleeper.storage.bucket_folder import (
    CHUNK_BYTES,
    ObjectFile,
    create_object,
    delete_objects,
    list_objects,
    list_prefixes,
    put_object,
    read_object,
    stream_object,
    upload,
    upload_file,
)
from sleeper.storage.disk import (
    create_whole_file,
    delete_durably,
    delete_empty_folders,
    make_folder,
    replacing_file,
    sync_file,
    sync_files,
    sync_folder,
    write_error,
)

_CONTROL = re.compile(r"[\0-\x1f\x7f]")
# Of smaller files a process may have more than the system maps.
_MAPPED_BYTES_MIN = 64 * 1024
UNFINISHED_SUFFIX = ".unfinished"
"""The end of the names of files that are being written, or that a killed process left."""


def check_path(path: str) -> str:
    """Returns the path. InvalidRequestError if it leaves its root or has control characters."""
    # Lookups check the path of each file, and most need no pattern.
    if ".." not in path and path[:1] != "/" and path.isprintable():
        return path
    if path[:1] == "/" or ".." in path.split("/") or _CONTROL.search(path):
        raise InvalidRequestError(
            f"invalid path {path[:200]!r} (expected a relative one without '..' and control "
            "characters)"
        )
    return path


class DataRoot:
    """The folder or bucket of an instance's objects.

    Paths are relative to it, like those in the state store. A path that would leave it is refused
    by every method: InvalidRequestError. A local file is visible while it is written, an object
    when it is complete. Data files take effect by their commit. Written content is durable when
    `sink` ends, or after `sync`.
    """

    def __init__(self, location: Path | Bucket) -> None:
        self._location = location
        self.store: LocalStore | S3Store
        if isinstance(location, Bucket):
            self.store = open_bucket(location)
        else:
            make_folder(location)  # durably, which the store does not
            self.store = LocalStore(location)
        self._folder = str(location)

    def check_writable(self) -> None:
        """Raises InvalidRequestError if the root was opened read-only."""

    def __reduce__(self) -> tuple[Callable[[Path | Bucket], "DataRoot"], tuple[Path | Bucket]]:
        """Pickles the place, so that a task on another machine opens its own store."""
        return _open_again, (self._location,)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The bucket that an engine needs to read the URLs, if the root is one."""
        return (self._location,) if isinstance(self._location, Bucket) else ()

    def url_of(self, path: str) -> str:
        """Returns a file's path or an object's URL for the engine."""
        root, path = self._location, check_path(path)
        if isinstance(root, Bucket):
            return root.url_of(path)
        # Lookups call this for each file, and pathlib takes ten times as long.
        return os.path.join(self._folder, path) if path else self._folder

    def sink(self, path: str, syncs: bool = True) -> contextlib.AbstractContextManager[Any]:
        """Returns a context with a binary file to write the object to.

        Without `syncs`, the caller calls `sync` afterwards. UnavailableError if disk or store
        fail, or if the name is taken.
        """
        if isinstance(self.store, S3Store):
            return upload(self.store, check_path(path))
        return self._file_sink(path, syncs)

    def sync(self, paths: Sequence[str]) -> None:
        """Makes objects durable that were written without. UnavailableError if the disk fails."""
        if isinstance(self.store, S3Store):
            return  # they are already
        try:
            sync_files([Path(self.url_of(path)) for path in paths])
        except OSError as error:
            raise UnavailableError(f"cannot write {', '.join(paths)}: {error}") from error

    def sync_names(self, paths: Sequence[str]) -> None:
        """Makes names durable of objects whose content is. UnavailableError if the disk fails."""
        if isinstance(self.store, S3Store):
            return
        try:
            for folder in {Path(self.url_of(path)).parent for path in paths}:
                sync_folder(folder)
        except OSError as error:
            raise UnavailableError(f"cannot write {', '.join(paths)}: {error}") from error

    @contextlib.contextmanager
    def local_target(self, path: str, folder: Path) -> Iterator[Path]:
        """Yields the path of a local file to write the object to.

        For a bucket the file is in `folder` and uploaded at the end. For a local root the name
        is reserved, and the caller makes the file durable.
        """
        if not isinstance(self.store, S3Store):
            target = Path(self.url_of(path))
            make_folder(target.parent)
            try:
                target.open("xb").close()
            except OSError as error:
                raise write_error(target, error) from error
            yield target
            return
        check_path(path)
        file = folder / f"upload-{uuid.uuid4().hex}"
        try:
            yield file
            upload_file(self.store, path, file)
        finally:
            file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _file_sink(self, path: str, syncs: bool) -> Iterator[Any]:
        target = Path(self.url_of(path))
        try:
            make_folder(target.parent)
            with _writing(target) as sink:
                yield sink
            if syncs:
                sync_file(target)
        except OSError as error:
            raise write_error(target, error) from error

    @contextlib.contextmanager
    def replacing(self, path: str) -> Iterator[Any]:
        """Yields a binary file that atomically replaces the object at the end.

        For results with fixed names, whose content is the same in every run. Data files are
        never replaced.
        """
        if isinstance(self.store, S3Store):
            with upload(self.store, check_path(path), replaces=True) as sink:
                yield sink
            return
        with self._replacing_file(path) as file, _writing(file) as sink:
            yield sink

    def create(self, path: str, content: bytes) -> bool:
        """Creates a small object. Returns False if the name is taken. Loads no Arrow."""
        if isinstance(self.store, S3Store):
            return create_object(self.store, check_path(path), content)
        target = Path(self.url_of(path))
        try:
            return create_whole_file(target, content, _unfinished(target))
        except OSError as error:
            raise write_error(target, error) from error

    def put(self, path: str, content: bytes) -> None:
        """Atomically creates or replaces a small object. Loads no Arrow, which functions lack."""
        if isinstance(self.store, S3Store):
            put_object(self.store, check_path(path), content)
            return
        with self._replacing_file(path) as file:
            file.write_bytes(content)

    @contextlib.contextmanager
    def _replacing_file(self, path: str) -> Iterator[Path]:
        """Yields the path of a file that replaces the object's at the end."""
        target = Path(self.url_of(path))
        make_folder(target.parent)
        try:
            with replacing_file(target, _unfinished(target)) as file:
                yield file
        except OSError as error:
            raise write_error(target, error) from error

    def read(self, path: str) -> bytes:
        """Returns the object's content. NotFoundError if it does not exist."""
        if isinstance(self.store, S3Store):
            return read_object(self.store, check_path(path))
        url = self.url_of(path)
        with self._read_errors(url):
            # The store would copy the content twice.
            return Path(url).read_bytes()

    def map(self, path: str) -> bytes | memoryview:
        """Returns the content of an object that never changes. NotFoundError as of `read`.

        A large local file is mapped: it is not copied, and processes share its memory.
        """
        if not isinstance(self.store, S3Store):
            url = self.url_of(path)
            with self._read_errors(url):
                if os.stat(url).st_size >= _MAPPED_BYTES_MIN:
                    return _map_file(url)
        return self.read(path)

    def open_ranges(self, path: str) -> io.RawIOBase:
        """Opens the object for reads of ranges, one request each. Reads can be repeated.

        FileNotFoundError, now or at a read, if it does not exist.
        """
        if isinstance(self.store, S3Store):
            return ObjectFile(self.store, check_path(path))
        try:
            return open(self.url_of(path), "rb", buffering=0)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnavailableError(f"cannot read object {self.url_of(path)}: {error}") from error

    def stream(self, path: str) -> Iterator[bytes]:
        """Yields the object's content in chunks. NotFoundError if it does not exist."""
        if isinstance(self.store, S3Store):
            yield from stream_object(self.store, check_path(path))
            return
        url = self.url_of(path)
        with self._read_errors(url), open(url, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    @contextlib.contextmanager
    def _read_errors(self, url: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotFoundError(f"object {url} does not exist") from error
        except OSError as error:
            raise UnavailableError(f"cannot read object {url}: {error}") from error

    def open(self, path: str, size: int | None = None) -> Any:
        """Opens the object as a file of Arrow. A known `size` saves a request.

        FileNotFoundError, now or at the first read, if it does not exist.
        """
        import pyarrow as pa

        if not isinstance(self.store, S3Store):
            return pa.OSFile(self.url_of(path))
        return pa.PythonFile(ObjectFile(self.store, check_path(path), size), mode="r")

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        """Yields all objects below a folder of the root, in no order."""
        if isinstance(self.store, S3Store):
            yield from list_objects(self.store, check_path(folder))
        else:
            yield from self._list_files(folder)

    def list_folders(self, folder: str) -> list[str]:
        """Returns the names of the folders in a folder of the root, in no order."""
        if isinstance(self.store, S3Store):
            return list_prefixes(self.store, check_path(folder))
        url = self.url_of(folder)
        try:
            with os.scandir(url) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnavailableError(f"cannot list {url}: {error}") from error

    def _list_files(self, folder: str) -> Iterator[StoredObject]:
        root = Path(self.url_of(""))
        for path in Path(self.url_of(folder)).rglob("*"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file():
                modified_ms = status.st_mtime_ns // 1_000_000
                yield StoredObject(path.relative_to(root).as_posix(), status.st_size, modified_ms)

    def delete(self, paths: list[str]) -> None:
        """Deletes the objects, durably. Missing objects are no error.

        An object that tells what others are, such as a manifest, is deleted before them, by a
        call of its own. Files are deleted directly, because obstore rejects the names of its own
        torn writes.
        """
        if isinstance(self.store, S3Store):
            delete_objects(self.store, list(map(check_path, paths)))
            return
        with self._delete_errors():
            delete_durably(Path(self.url_of(path)) for path in paths)

    def remove_empty_folders(self, folder: str) -> None:
        """Removes a folder of the root and those below it, durably, if they are empty.

        A bucket has no folders.
        """
        if isinstance(self.store, S3Store):
            return
        with self._delete_errors():
            delete_empty_folders(Path(self.url_of(folder)))

    @contextlib.contextmanager
    def _delete_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = error.filename or self._folder
            raise UnavailableError(f"cannot delete {path}: {error}") from error


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[Any]:
    """Yields a new file of Arrow."""
    # Arrow loads slowly, and opening an instance does not need it.
    import pyarrow as pa

    with target.open("xb") as file, pa.PythonFile(file, mode="w") as sink:
        yield sink


def _unfinished(target: Path) -> Path:
    return target.with_name(f"{target.name}.{uuid.uuid4().hex[:16]}{UNFINISHED_SUFFIX}")


def _map_file(path: str) -> memoryview:
    """Returns the content of a file. Python's own mappings would each keep a file open."""
    import pyarrow as pa

    with pa.memory_map(path) as file:
        return memoryview(file.read_buffer()).cast("B")


def _open_again(location: Path | Bucket) -> DataRoot:
    """Opens the root of another process.

    InvalidRequestError if this machine does not see its folder. A new folder in its place would
    receive files that no other machine reads.
    """
    if isinstance(location, Path) and not location.is_dir():
        raise InvalidRequestError(
            f"folder {location} does not exist on host {socket.gethostname()} (expected a folder "
            "that all machines see at the same path, or an instance on AWS)"
        )
    return DataRoot(location)


def open_root(location: str, like: DataRoot | None = None) -> DataRoot:
    """Opens a local folder, which is created, or `s3://bucket/prefix`.

    Region, endpoint and credentials are those of the bucket of the root `like`, if it is one.
    """
    if not is_s3_url(location):
        return DataRoot(Path(location).resolve())
    name, prefix = split_s3_url(location)
    own = next(iter(like.buckets), None) if like is not None else None
    return DataRoot(replace(own or Bucket(name), name=name, prefix=prefix.strip("/")))
