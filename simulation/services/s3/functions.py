"""The functions of obstore that Sleeper uses, for simulated stores."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

from simulation.services.s3.buckets import ConditionError, StoredObject
from simulation.services.s3.store import SimulatedStore, conflict_error

Content = bytes

_PART_BYTES = 5 * 1024**2
_WRITER_BYTES = 10 * 1024**2
_LIST_ITEMS = 50
_DELETED_AT_ONCE = 1000
# The part of the objects of a request that S3 does not delete.
_PARTIAL = 0.01
# The part of conditional puts that S3 refuses if another write of the object is in flight.
_CONFLICT = 0.5


class Result:
    """An answered read of an object."""

    def __init__(self, path: str, stored: StoredObject) -> None:
        self.meta = stored.describe(path)
        self._content = stored.content

    def stream(self, min_chunk_size: int = 10 * 1024**2) -> Iterator[Content]:
        """Yields the content in chunks."""
        for start in range(0, len(self._content), min_chunk_size):
            yield self._content[start : start + min_chunk_size]

    def bytes(self) -> Content:
        """Returns the content."""
        return self._content


def get(store: SimulatedStore, path: str) -> Result:
    """Returns an object. FileNotFoundError if it does not exist."""
    return Result(path, _find(store, "get", path))


def head(store: SimulatedStore, path: str) -> dict[str, Any]:
    """Returns the metadata of an object. FileNotFoundError if it does not exist."""
    return _find(store, "head", path).describe(path)


def get_range(store: SimulatedStore, path: str, *, start: int, end: int) -> bytes:
    """Returns bytes of an object, fewer if it ends before. GenericError if it ends at `start`."""
    if start >= end:
        raise ValueError(f"Invalid range requested, start: {start} end: {end}")
    content = _find(store, "get_range", path).content
    if start >= len(content):
        raise GenericError(
            "Generic S3 error: Server returned non-2xx status code: 416 Range Not Satisfiable: "
            "<Error><Code>InvalidRange</Code><Message>The requested range is not satisfiable"
            "</Message></Error>"
        )
    return content[start:end]


def _find(store: SimulatedStore, operation: str, path: str) -> StoredObject:
    key = store.key_of(path)

    def effect() -> StoredObject:
        stored = store.bucket.objects.get(key)
        if stored is None:
            raise FileNotFoundError(
                f"Object at location {key} not found: Server returned non-2xx status code: 404 Not "
                "Found: <Error><Code>NoSuchKey</Code><Message>The specified key does not exist."
                "</Message></Error>"
            )
        return stored

    return store.send(operation, key, effect)


def put(
    store: SimulatedStore,
    path: str,
    file: Any,
    *,
    mode: Any = None,
    use_multipart: bool | None = None,
    chunk_size: int = _PART_BYTES,
    **_options: object,
) -> dict[str, Any]:
    """Puts an object, in parts if it is large and the put has no condition."""
    content = _content(file)
    has_condition = mode not in {None, "overwrite"} if not isinstance(mode, dict) else True
    if use_multipart is not False and not has_condition and len(content) > chunk_size:
        chunks = [content[i : i + chunk_size] for i in range(0, len(content), chunk_size)]
        return _result(_put_parts(store, path, chunks))
    condition = None
    if has_condition:
        condition = mode["e_tag"] if isinstance(mode, dict) else ""
    return _result(_put_whole(store, store.key_of(path), content, condition))


def _put_whole(
    store: SimulatedStore, key: str, content: bytes, condition: str | None
) -> StoredObject:
    def effect() -> StoredObject:
        if condition is not None and store.bucket.conflicts(key) and store.calls.choose(_CONFLICT):
            raise conflict_error(key, condition)
        try:
            return store.bucket.put(key, content, store.service.now_ms(), condition)
        except ConditionError as error:
            if condition:
                raise PreconditionError(f"Request precondition failure for path {key}") from error
            raise AlreadyExistsError(f"Object at location {key} already exists") from error

    with store.bucket.writing(key):
        return store.send("put", key, effect, idempotent=condition is None)


def _put_parts(store: SimulatedStore, path: str, chunks: Sequence[bytes]) -> StoredObject:
    key = store.key_of(path)
    store.send("create_multipart_upload", key, lambda: store.bucket)
    for _ in chunks:
        store.send("upload_part", key, lambda: store.bucket)

    def effect() -> StoredObject:
        return store.bucket.put(key, b"".join(chunks), store.service.now_ms(), parts=len(chunks))

    return store.send("complete_multipart_upload", key, effect)


def _content(file: Any) -> bytes:
    if isinstance(file, Path):
        return file.read_bytes()
    return bytes(file.read() if hasattr(file, "read") else file)


def _result(stored: StoredObject) -> dict[str, Any]:
    return {"e_tag": stored.e_tag, "version": None}


def list_objects(
    store: SimulatedStore, prefix: str | None = None
) -> Iterator[Sequence[dict[str, Any]]]:
    """Yields the objects below a prefix in chunks. Each request has a thousand."""
    start = _folder_key(store, prefix)
    after = ""
    while True:

        def effect(after: str = after) -> Sequence[dict[str, Any]]:
            bucket = store.bucket
            keys = bucket.page(start, after)
            return [bucket.objects[key].describe(store.path_of(key)) for key in keys]

        page = store.send("list", start, effect)
        for first in range(0, len(page), _LIST_ITEMS):
            yield page[first : first + _LIST_ITEMS]
        if not page:
            return
        after = store.key_prefix + page[-1]["path"]


def list_with_delimiter(store: SimulatedStore, prefix: str | None = None) -> dict[str, Any]:
    """Returns the objects and the folders directly below a prefix."""
    start = _folder_key(store, prefix)

    def effect() -> dict[str, Any]:
        bucket, folders, objects = store.bucket, dict[str, None](), []
        for key in bucket.keys(start):
            name, slash, _ = key[len(start) :].partition("/")
            if slash:
                folders[store.path_of(start + name)] = None
            else:
                objects.append(bucket.objects[key].describe(store.path_of(key)))
        return {"common_prefixes": [*folders], "objects": objects}

    return store.send("list", start, effect)


def _folder_key(store: SimulatedStore, prefix: str | None) -> str:
    """Returns the beginning of the keys below a prefix, which ends between two parts of a path."""
    key = store.key_of(prefix or "").strip("/")
    return f"{key}/" if key else ""


def delete(store: SimulatedStore, paths: str | Sequence[str]) -> None:
    """Deletes objects. Missing ones are no error, as in S3."""
    if isinstance(paths, str):
        key = store.key_of(paths)
        with store.bucket.writing(key):
            store.send("delete", key, lambda: store.bucket.delete(key))
        return
    for first in range(0, len(paths), _DELETED_AT_ONCE):
        _delete_all(store, [store.key_of(p) for p in paths[first : first + _DELETED_AT_ONCE]])


def _delete_all(store: SimulatedStore, keys: Sequence[str]) -> None:
    def effect() -> str | None:
        remaining: str | None = None
        for key in keys:
            if store.calls.choose(_PARTIAL):
                remaining = key
            else:
                store.bucket.delete(key)
        return remaining

    remaining = store.send("delete_objects", keys[0] if keys else "", effect, idempotent=False)
    if remaining is not None:
        raise GenericError(f"Generic S3 error: DeleteObjects failed for {remaining}: InternalError")


class Writer:
    """A writer of an object, which exists when it is closed."""

    def __init__(self, store: SimulatedStore, path: str, part_bytes: int) -> None:
        self._store, self._path, self._part_bytes = store, path, part_bytes
        self._kept = bytearray()

    def write(self, data: Any) -> int:
        self._kept += data
        return len(data)

    def close(self) -> None:
        """Creates the object."""
        put(self._store, self._path, bytes(self._kept), chunk_size=self._part_bytes)


def open_writer(
    store: SimulatedStore,
    path: str,
    *,
    buffer_size: int = _WRITER_BYTES,
    **_options: object,
) -> Writer:
    """Opens a writer of an object."""
    return Writer(store, path, buffer_size)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "delete": delete,
    "get": get,
    "get_range": get_range,
    "head": head,
    "list": list_objects,
    "list_with_delimiter": list_with_delimiter,
    "open_writer": open_writer,
    "put": put,
}
"""The functions by their names in obstore."""
