"""Objects of one bucket: uploads, reads of ranges, deletion in batches; users' files."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.exceptions import NotFoundError as ObjectNotFoundError
from obstore.store import S3Store

from sleeper.errors import DataError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.files import StoredObject
from sleeper.retries import Backoff, retry
from sleeper.storage.bucket import (
    Bucket,
    describe_store_error,
    is_range_error,
    missing_object_error,
    open_bucket,
    split_s3_url,
)
from sleeper.storage.range_file import RangeFile

# The limit of a single put, and the part size of larger uploads. S3 allows 10,000 parts, so an
# object has at most 160 GB.
_PART_BYTES = 16 * 1024**2
_PARTS_IN_FLIGHT = 1
# The upload of a complete file needs no other memory.
_FILE_PARTS_IN_FLIGHT = 4
_DELETED_AT_ONCE = 1000
CHUNK_BYTES = 8 * 1024**2


@contextlib.contextmanager
def upload(store: S3Store, path: str, replaces: bool = False) -> Iterator[Any]:
    """Yields a binary file and creates the object from it at the end.

    An error creates no object. S3 checks that the name of a small object is free, unless
    `replaces` is true. For an upload in parts it does not check.
    """
    # Arrow loads slowly, and opening an instance does not need it.
    import pyarrow as pa

    raw = _Upload(store, path, replaces)
    with _upload_errors(store, path):
        with pa.PythonFile(raw, mode="w") as sink:
            yield sink
            sink.flush()
        raw.complete()


def upload_file(store: S3Store, path: str, file: Path) -> None:
    """Uploads a local file with the checks of `upload`, some parts at a time."""
    with _upload_errors(store, path):
        if file.stat().st_size <= _PART_BYTES:
            _put_new(store, path, file.read_bytes())
        else:
            obstore.put(
                store,
                path,
                file,
                chunk_size=_PART_BYTES,
                max_concurrency=_FILE_PARTS_IN_FLIGHT,
            )


def create_object(store: S3Store, path: str, content: bytes) -> bool:
    """Puts a small object. Returns False if the name is taken."""
    with _upload_errors(store, path):
        return _put_free(store, path, content) is None


def put_object(store: S3Store, path: str, content: bytes) -> None:
    """Creates or replaces a small object."""
    with _upload_errors(store, path):
        obstore.put(store, path, content, use_multipart=False)


def _put_new(store: S3Store, path: str, content: bytes) -> None:
    """Puts an object under a name that must be free.

    The store retries a put after an error or a lost response. If the first put succeeded, the
    retry fails because the name is taken by the same bytes.
    """
    existing = _put_free(store, path, content)
    if existing is None:
        return
    if existing.meta["size"] != len(content) or bytes(existing.bytes()) != content:
        raise UnavailableError(f"cannot write {_url_of(store, path)}: the object already exists")


class _PutInFlightError(UnavailableError):
    """Another put of the name was in flight."""


def _put_free(store: S3Store, path: str, content: bytes) -> "obstore.GetResult | None":
    """Puts an object. Returns the one that has the name if the name is taken.

    S3 also refuses a put while another one of the name is in flight, and that one may fail. obstore
    raises the same error for both, so the put is repeated if no object exists.
    """

    def attempt() -> "obstore.GetResult | None":
        try:
            obstore.put(store, path, content, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            try:
                return obstore.get(store, path)
            except (ObjectNotFoundError, FileNotFoundError):
                raise _PutInFlightError(
                    f"cannot write {_url_of(store, path)}: another put of it is in flight"
                ) from error
        return None

    return retry(attempt, on=_PutInFlightError, backoff=Backoff.for_requests(0.05, 2))


@contextlib.contextmanager
def _upload_errors(store: S3Store, path: str) -> Iterator[None]:
    """Translates a store's errors to UnavailableError."""
    try:
        yield
    except (BaseError, OSError) as error:
        reason = describe_store_error(error)
        raise UnavailableError(f"cannot write {_url_of(store, path)}: {reason}") from error


def _url_of(store: S3Store, path: str) -> str:
    return Bucket(store.config["bucket"], store.prefix or "").url_of(path)


def read_object(store: S3Store, path: str) -> bytes:
    """Returns the object's content. NotFoundError if it does not exist."""
    with store_errors(_url_of(store, path)):
        return bytes(obstore.get(store, path).bytes())


def stream_object(store: S3Store, path: str) -> Iterator[bytes]:
    """Yields the object's content in chunks. NotFoundError if it does not exist."""
    with store_errors(_url_of(store, path)):
        yield from map(bytes, obstore.get(store, path).stream(min_chunk_size=CHUNK_BYTES))


def list_objects(store: S3Store, prefix: str) -> Iterator[StoredObject]:
    """Yields all objects below a prefix."""
    with store_errors(_url_of(store, prefix)):
        for page in obstore.list(store, prefix=prefix):
            for each in page:
                modified_ms = round(each["last_modified"].timestamp() * 1000)
                yield StoredObject(each["path"], each["size"], modified_ms)


def list_prefixes(store: S3Store, prefix: str) -> list[str]:
    """Returns the last names of the prefixes directly below a prefix."""
    with store_errors(_url_of(store, prefix)):
        result = obstore.list_with_delimiter(store, prefix=prefix or None)
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in result["common_prefixes"]]


@contextlib.contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Translates a store's errors.

    NotFoundError for a missing object, DataError for a range after its end, and otherwise
    UnavailableError, also for a missing bucket.
    """
    try:
        yield
    except (ObjectNotFoundError, FileNotFoundError) as error:
        raise missing_object_error(path, error) from error
    except (BaseError, OSError) as error:
        if is_range_error(error):
            raise DataError(f"object {path} is shorter than expected") from error
        reason = describe_store_error(error)
        raise UnavailableError(f"cannot read object {path}: {reason}") from error


class _Upload(io.RawIOBase):
    """A buffer of one part, and a multipart upload beyond that."""

    def __init__(self, store: S3Store, path: str, replaces: bool) -> None:
        self._store, self._path, self._replaces = store, path, replaces
        self._kept = bytearray()
        self._parts: Any = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._parts is None:
            self._kept += data
            if len(self._kept) > _PART_BYTES:
                self._parts = obstore.open_writer(
                    self._store,
                    self._path,
                    buffer_size=_PART_BYTES,
                    max_concurrency=_PARTS_IN_FLIGHT,
                )
                self._parts.write(bytes(self._kept))
                self._kept = bytearray()
        else:
            self._parts.write(bytes(data))
        return len(data)

    def complete(self) -> None:
        """Creates the object from the written bytes."""
        if self._parts is not None:
            self._parts.close()
        elif self._replaces:
            obstore.put(self._store, self._path, bytes(self._kept), use_multipart=False)
        else:
            _put_new(self._store, self._path, bytes(self._kept))
        self._kept = bytearray()


@contextlib.contextmanager
def _file_errors(path: str) -> Iterator[None]:
    try:
        with store_errors(path):
            yield
    except NotFoundError as error:
        raise FileNotFoundError(str(error)) from error


class ObjectFile(RangeFile):
    """An object as a readable file. Each read is one request for a range.

    FileNotFoundError if the object is gone, UnavailableError if the store does not answer.
    """

    def __init__(self, store: S3Store, path: str, size: int | None = None) -> None:
        self._store, self._path, self._url = store, path, _url_of(store, path)
        with _file_errors(self._url):
            super().__init__(obstore.head(store, path)["size"] if size is None else size)

    def read_range(self, start: int, stop: int) -> bytes:
        with _file_errors(self._url):
            return bytes(obstore.get_range(self._store, self._path, start=start, end=stop))


def delete_objects(store: S3Store, paths: list[str]) -> None:
    """Deletes objects, a thousand per request. Missing objects are no error."""
    for start in range(0, len(paths), _DELETED_AT_ONCE):
        some = paths[start : start + _DELETED_AT_ONCE]
        try:
            obstore.delete(store, some)
        except FileNotFoundError:
            continue
        except (BaseError, OSError) as error:
            url, reason = _url_of(store, some[0]), describe_store_error(error)
            raise UnavailableError(
                f"cannot delete {len(some)} objects, the first {url}: {reason}"
            ) from error


_READ_AHEAD_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class S3File:
    """An object of a bucket, or all objects whose keys begin with its own and a slash.

    Of these, an ingest reads Parquet files, or with `has_every_format` files of all known formats.
    """

    bucket: Bucket
    key: str
    has_every_format: bool = False

    def __str__(self) -> str:
        return f"s3://{self.bucket.name}/{self.key}"

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rsplit("/", 1)[-1]

    def open_ranges(self) -> ObjectFile:
        """Opens the object for reads of ranges, one request each."""
        return ObjectFile(open_bucket(self.bucket), self.key)

    def open_stream(self) -> IO[bytes]:
        """Opens the object for a sequential read."""
        return cast(IO[bytes], io.BufferedReader(self.open_ranges(), _READ_AHEAD_BYTES))

    def size(self) -> int | None:
        """Returns the bytes of the object with exactly this key, None if it does not exist."""
        try:
            with store_errors(str(self)):
                return obstore.head(open_bucket(self.bucket), self.key)["size"]
        except NotFoundError:
            return None

    def find_version(self) -> tuple[int, str] | None:
        """Returns the bytes and the entity tag of the object with exactly this key, or None."""
        try:
            with store_errors(str(self)):
                return _version_of(obstore.head(open_bucket(self.bucket), self.key))
        except NotFoundError:
            return None

    def below(self) -> Iterator["S3File"]:
        """Yields the objects below the key, in no order."""
        return (file for file, _ in self.below_with_bytes())

    def below_with_bytes(self) -> Iterator[tuple["S3File", int]]:
        """Yields the objects below the key with their bytes, in no order."""
        return ((file, size) for file, size, _ in self.below_with_versions())

    def below_with_versions(self) -> Iterator[tuple["S3File", int, str]]:
        """Yields the objects below the key with their bytes and entity tags, in no order."""
        with store_errors(str(self)):
            for page in obstore.list(open_bucket(self.bucket), prefix=self.key.rstrip("/")):
                for each in page:
                    yield replace(self, key=each["path"]), *_version_of(each)


def _version_of(result: Any) -> tuple[int, str]:
    return result["size"], result["e_tag"] or result["last_modified"].isoformat()


SourceFile = Path | S3File
"""A file, folder or prefix that a user names by a local path or a URL of S3."""


def s3_file(name: str, buckets: Sequence[Bucket]) -> S3File:
    """Returns the file of an S3 URL or of `bucket/key`.

    InvalidRequestError if its bucket is not one of `buckets`.
    """
    bucket_name, key = split_s3_url(name)
    for bucket in buckets:
        if bucket.name == bucket_name:
            return S3File(replace(bucket, prefix=""), key)
    raise InvalidRequestError(
        f"file {name}: bucket {bucket_name} is not an allowed source "
        "(see sleeper.ingest.source.bucket)"
    )
