"""Objects of a backup: copies that are verified, and the list of them with their checksums.

The list has a line of JSON for each data file or key file: its path, and size and digest of it and
of each object beside it. Copies run in several threads, and results come in order.
"""

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import xxhash
import zstandard

from sleeper.backup.manifest import ObjectRecord
from sleeper.datafiles.sidecars.checksum import (
    FileChecksum,
    checksum_from_bytes,
    checksum_in_sections,
    find_difference,
)
from sleeper.errors import DataError, NotFoundError
from sleeper.files import CHECKSUM_SUFFIX
from sleeper.statestore.state_file import StateObject
from sleeper.storage.location import DataRoot

OnBytes = Callable[[int], None]
"""Receives the number of bytes that were copied or verified."""

_THREADS = 4
_LEVEL = 3

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of a table with the objects beside it: `objects` has its own record first."""

    objects: tuple[ObjectRecord, ...]

    @property
    def path(self) -> str:
        return self.objects[0].path


def digest_object(root: DataRoot, path: str) -> ObjectRecord:
    """Reads an object. NotFoundError if it does not exist."""
    digest, size = xxhash.xxh3_128(), 0
    for chunk in root.stream(path):
        digest.update(chunk)
        size += len(chunk)
    return ObjectRecord(path, size, digest.hexdigest())


def copy_object(
    source: DataRoot,
    path: str,
    target: DataRoot,
    target_path: str,
    on_bytes: OnBytes,
    checksum: FileChecksum | None = None,
) -> ObjectRecord:
    """Copies an object, reads the copy, and returns its record, with the path of the source.

    DataError if the source differs from its checksum, if given, or the copy from the source.
    """
    digest, size = xxhash.xxh3_128(), 0

    def read() -> Iterator[bytes]:
        nonlocal size
        for chunk in source.stream(path):
            digest.update(chunk)
            size += len(chunk)
            sink.write(chunk)
            on_bytes(len(chunk))
            yield chunk

    with target.replacing(target_path) as sink:
        actual = checksum_in_sections(read(), checksum.ends if checksum else ())
        fault = checksum and find_difference(checksum, actual)
        if fault:
            raise DataError(f"{source.url_of(path)} is damaged: {fault}")
    record = ObjectRecord(path, size, digest.hexdigest())
    copied = digest_object(target, target_path)
    if (copied.bytes, copied.digest) != (record.bytes, record.digest):
        raise DataError(f"{target.url_of(target_path)} differs from {source.url_of(path)}")
    return record


class PresentObjects:
    """The objects of a place: sizes, and digests where an earlier backup recorded them.

    They are in a database on disk, because a table may have millions.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute(
            "CREATE TABLE objects (path TEXT PRIMARY KEY, bytes INTEGER NOT NULL, digest TEXT)"
            " WITHOUT ROWID"
        )

    def close(self) -> None:
        self._connection.close()

    def add(self, objects: Iterable[tuple[str, int]]) -> None:
        """Adds objects that are there, by path and size."""
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, NULL)", objects)
        self._connection.execute("COMMIT")

    def add_digests(self, records: Iterable[FileRecord]) -> None:
        """Adds the digests of objects that are there with the size of the record."""
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "UPDATE objects SET digest = ? WHERE path = ? AND bytes = ?",
            ((o.digest, o.path, o.bytes) for record in records for o in record.objects),
        )
        self._connection.execute("COMMIT")

    def find(self, path: str) -> ObjectRecord | None:
        """Returns the object, with an empty digest if none is recorded. None if it is missing."""
        result = self._connection.execute(
            "SELECT bytes, digest FROM objects WHERE path = ?", (path,)
        ).fetchone()
        return result and ObjectRecord(path, result[0], result[1] or "")


@dataclass(slots=True)
class CopyCounts:
    """The objects and bytes that were copied."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class FileCopier:
    """Copies files of a table to a place, with the objects beside them."""

    source: DataRoot
    target: DataRoot
    prefix: str
    on_bytes: OnBytes
    counts: CopyCounts
    lock: threading.Lock

    def copy(self, file: StateObject, present: Sequence[ObjectRecord | None]) -> FileRecord:
        """Returns the records of a file. `present` has its objects at the place, file first.

        DataError names a missing or damaged object.
        """
        paths = [file.path, *(file.path + suffix for suffix in file.sidecars)]
        try:
            beside = [
                self._copy(path, record)
                for path, record in zip(paths[1:], present[1:], strict=True)
            ]
            return FileRecord((self._copy_file(file, present[0]), *beside))
        except NotFoundError as error:
            raise DataError(f"{error} (expected at {self.source.url_of(file.path)})") from error

    def _copy_file(self, file: StateObject, present: ObjectRecord | None) -> ObjectRecord:
        is_there = present is not None and present.bytes == file.bytes
        if present is not None and is_there and present.digest:
            self.on_bytes(file.bytes)
            return present
        checksum = self._checksum(file)
        if is_there and checksum is not None and self._is_whole(file.path, checksum):
            # An interrupted backup copied it, perhaps without the sync of its folder.
            self.target.sync_names([self.prefix + file.path])
            record = digest_object(self.target, self.prefix + file.path)
            self.on_bytes(file.bytes)
            return ObjectRecord(file.path, record.bytes, record.digest)
        record = self._copy(file.path, None, checksum, self.on_bytes)
        if record.bytes != file.bytes:
            raise DataError(
                f"{self.source.url_of(file.path)} has {record.bytes:,} bytes (expected "
                f"{file.bytes:,})"
            )
        return record

    def _checksum(self, file: StateObject) -> FileChecksum | None:
        if CHECKSUM_SUFFIX not in file.sidecars:
            return None
        path = file.path + CHECKSUM_SUFFIX
        return checksum_from_bytes(self.source.read(path), path)

    def _is_whole(self, path: str, checksum: FileChecksum) -> bool:
        content = self.target.stream(self.prefix + path)
        return find_difference(checksum, checksum_in_sections(content, checksum.ends)) is None

    def _copy(
        self,
        path: str,
        present: ObjectRecord | None,
        checksum: FileChecksum | None = None,
        on_bytes: OnBytes = lambda _: None,
    ) -> ObjectRecord:
        if present is not None and present.digest:
            return present
        record = copy_object(self.source, path, self.target, self.prefix + path, on_bytes, checksum)
        with self.lock:
            self.counts.objects += 1
            self.counts.bytes += record.bytes
        return record


def map_in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yields the results of some threads in the order of the items, a few at a time."""
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="copy") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= 2 * _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


@contextmanager
def write_records(file: Path) -> Iterator[Callable[[FileRecord], None]]:
    """Yields a function that adds a record to a list of objects."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with file.open("wb") as raw, compressor.stream_writer(raw) as out:

        def add(record: FileRecord) -> None:
            first, *beside = record.objects
            line = [
                first.path,
                *([o.path[len(first.path) :], o.bytes, o.digest] for o in (first, *beside)),
            ]
            out.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

        yield add


def read_records(file: Path, name: str) -> Iterator[FileRecord]:
    """Yields the records of a list. DataError if it is damaged."""
    with file.open("rb") as raw:
        try:
            for line in _lines(raw):
                path, *objects = json.loads(line)
                yield FileRecord(
                    tuple(ObjectRecord(path + suffix, *rest) for suffix, *rest in objects)
                )
        except (zstandard.ZstdError, ValueError, TypeError) as error:
            raise DataError(f"{name} is damaged: {error}") from error


def _lines(raw: BinaryIO) -> Iterator[bytes]:
    with closing(zstandard.ZstdDecompressor().stream_reader(raw)) as content:
        rest = b""
        while chunk := content.read(1 << 20):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        if rest:
            raise ValueError("its last line is incomplete")
