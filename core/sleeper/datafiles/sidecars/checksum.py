"""The `.checksum` sidecar: hashes of a data file's bytes, which detect damage.

A file is hashed in adjacent *sections*: the leading magic, each row group, and the rest (page
index and footer). A reader of some row groups can thus verify its bytes, including headers and
footer, which page checksums do not cover. The sidecar is text: the hash's name (XXH3, 128 bits),
a line with end offset and digest for each section, and the digest of these lines, which
distinguishes a damaged sidecar from a damaged file. Earlier versions wrote one line: name and
digest of the whole file.

DataFusion verifies no bytes, so a file is checked against its sidecar before its rows are used.
If that is missing or damaged, the file is decoded and the checksums of its pages are verified.
This covers neither headers nor the footer, and only the encoding in files of DataFusion's writer.
"""

import bisect
import contextlib
import io
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from sleeper.errors import (
    DataError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
    is_transient,
)
from sleeper.files import CHECKSUM_SUFFIX
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)


_NAME = "xxh3-128"
_SECTIONS = "sections"
_WHOLE_FILE = re.compile(f"{_NAME} ([0-9a-f]{{32}})\n".encode())


@dataclass(frozen=True, slots=True)
class Section:
    """The bytes of a file from `start` to `end`, None for the file's end."""

    start: int
    end: int | None
    digest: str


@dataclass(frozen=True, slots=True)
class FileChecksum:
    """The sections of a file, ascending, up to the file's end."""

    sections: tuple[Section, ...]

    def to_bytes(self) -> bytes:
        """Returns the sidecar's content."""
        lines = [f"{_NAME} {_SECTIONS}\n", *(f"{s.end} {s.digest}\n" for s in self.sections)]
        listed = "".join(lines).encode()
        return listed + _last_line(listed)

    @property
    def has_sections(self) -> bool:
        """Whether it has sections. Earlier versions hashed the whole file."""
        return self.sections[-1].end is not None

    @property
    def ends(self) -> list[int]:
        """The known ends of the sections, for `checksum_in_sections`."""
        return [s.end for s in self.sections if s.end is not None]

    def digest_at(self, extent: tuple[int, int]) -> str:
        """Returns the digest of the section at these offsets. ValueError if there is none."""
        index = bisect.bisect_left(self.sections, extent[0], key=lambda s: s.start)
        section = self.sections[index]
        if (section.start, section.end) != extent:
            raise ValueError(f"bytes {extent[0]} to {extent[1]} are not a section of its checksum")
        return section.digest

    def write_sidecar(self, root: DataRoot, path: str) -> str:
        """Writes the sidecar of the file and returns its suffix. The caller syncs it."""
        with root.sink(path + CHECKSUM_SUFFIX, syncs=False) as sink:
            sink.write(self.to_bytes())
        return CHECKSUM_SUFFIX


def checksum_from_bytes(content: bytes, path: str) -> FileChecksum:
    """Parses a sidecar. DataError names the path if it is damaged or of another format."""
    first, *lines = content.decode(errors="replace").splitlines()[:-1] or [""]
    if whole := _WHOLE_FILE.fullmatch(content):
        return FileChecksum((Section(0, None, whole[1].decode()),))
    listed = content[: content.rstrip(b"\n").rfind(b"\n") + 1]
    if first != f"{_NAME} {_SECTIONS}" or content != listed + _last_line(listed):
        raise DataError(f"sidecar {path} is not a checksum by {_NAME}: {content[:60]!r}")
    if not lines:
        raise DataError(f"sidecar {path} has no sections")
    try:
        ends = [(int(end), digest) for end, digest in (line.split(" ") for line in lines)]
    except ValueError as error:
        raise DataError(f"sidecar {path} is not a checksum by {_NAME}: {error}") from error
    starts = [0, *(end for end, _ in ends)]
    return FileChecksum(
        tuple(Section(start, *each) for start, each in zip(starts, ends, strict=False))
    )


def _last_line(listed: bytes) -> bytes:
    return f"{_NAME} {compute_digest(listed)}\n".encode()


def compute_digest(content: Any) -> str:
    """Returns the digest of bytes in hexadecimal."""
    return xxhash.xxh3_128(content).hexdigest()


class SectionHasher:
    """Hashes a stream of bytes in sections."""

    def __init__(self) -> None:
        self._digest = xxhash.xxh3_128()
        self._sections: list[Section] = []
        self._start = 0
        self.size = 0

    def update(self, content: Any) -> None:
        """Adds the next bytes."""
        self._digest.update(content)
        self.size += len(content)

    def end_section(self) -> None:
        """Ends a section after the added bytes, unless it is empty."""
        if self.size > self._start:
            self._sections.append(Section(self._start, self.size, self._digest.hexdigest()))
            self._digest.reset()
            self._start = self.size

    def finish(self) -> FileChecksum:
        """Returns the checksum of all added bytes."""
        self.end_section()
        return FileChecksum(tuple(self._sections))


class HashedSink(io.RawIOBase):
    """A binary file that hashes the written bytes and forwards them to another file."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.hasher = SectionHasher()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._sink.write(content)
        self.hasher.update(content)
        return len(content)

    def tell(self) -> int:
        return self.hasher.size


def checksum_in_sections(parts: Iterator[bytes], ends: Sequence[int]) -> FileChecksum:
    """Returns the checksum of a file read in parts, with sections that end at `ends`."""
    hasher = SectionHasher()
    next_ends = iter(ends)
    end = next(next_ends, None)
    for part in parts:
        left = memoryview(part)
        while end is not None and hasher.size + len(left) >= end:
            taken = end - hasher.size
            hasher.update(left[:taken])
            hasher.end_section()
            left = left[taken:]
            end = next(next_ends, None)
        hasher.update(left)
    return hasher.finish()


_BATCH_ROWS = 16_384
_READ_BYTES = 1024**2
# Each read of an object is one request.
_OBJECT_READ_BYTES = 16 * 1024**2
_NAMES_BYTES_MAX = 16 * 1024**2


def read_checksum(root: DataRoot, path: str) -> FileChecksum | None:
    """Returns the data file's checksum, None if it is missing or damaged."""
    try:
        return checksum_from_bytes(root.read(path + CHECKSUM_SUFFIX), path + CHECKSUM_SUFFIX)
    except (NotFoundError, DataError) as error:
        logger.warning("verifying only page checksums: %s", error)
        return None


def verify_end(root: DataRoot, path: str) -> bool:
    """Verifies a file's page index and footer. Returns False if they have no checksum.

    DataError if they are damaged, OSError if they cannot be read. Call this before reading
    statistics, because Arrow aborts the process for some damaged footers.
    """
    checksum = read_checksum(root, path)
    if checksum is None or not checksum.has_sections:
        return False
    last = checksum.sections[-1]
    with root.open(path) as content:
        is_whole = content.size() == last.end
        content.seek(last.start if is_whole else 0)
        if not is_whole or compute_digest(content.read()) != last.digest:
            raise damage_error(path, last.start, last.end)
    return True


@contextlib.contextmanager
def file_errors(root: DataRoot, path: str) -> Iterator[None]:
    """Raises StateMovedOnError if a data file is gone, UnavailableError if it is unreadable."""
    try:
        yield
    except FileNotFoundError as error:
        raise StateMovedOnError(f"a data file is missing: {root.url_of(path)}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error}") from error


def damage_error(path: str, start: int, end: int | None) -> DataError:
    """Returns the error of a data file with changed bytes."""
    return DataError(f"data file {path} is damaged: {_describe_bytes(start, end)}")


def _describe_bytes(start: int, end: int | None) -> str:
    return f"bytes {start} to {'its end' if end is None else end} do not match their checksum"


def verify_bytes(root: DataRoot, path: str) -> None:
    """Reads and verifies a data file. DataError if it is damaged, StateMovedOnError if gone."""
    damage = check_bytes(root, path)
    if damage is not None:
        raise damage


def check_bytes(root: DataRoot, path: str) -> DataError | None:
    """Returns the error of a damaged file, None for a whole one. StateMovedOnError if gone."""
    fault = find_fault(root, path)
    return None if fault is None else DataError(f"data file {path} is damaged: {fault}")


def find_fault(root: DataRoot, path: str) -> str | None:
    """Returns the fault of a file's bytes, None for a whole one. StateMovedOnError if gone."""
    checksum = read_checksum(root, path)
    with file_errors(root, path), root.open(path) as content:
        if checksum is None:
            return _fault_of_pages(content)
        size = _OBJECT_READ_BYTES if root.buckets else _READ_BYTES
        parts = iter(lambda: content.read(size), b"")
        return find_difference(checksum, checksum_in_sections(parts, checksum.ends))


def find_difference(expected: FileChecksum, actual: FileChecksum) -> str | None:
    """Returns how the bytes of a file differ from its checksum, None if they do not."""
    for section, read in zip_longest(expected.sections, actual.sections):
        if section is None:
            return f"it has more than {read.start} bytes"
        if read is None or read.digest != section.digest:
            return _describe_bytes(section.start, section.end)
    return None


def _fault_of_pages(content: pa.NativeFile) -> str | None:
    try:
        with pq.ParquetFile(content, page_checksum_verification=True, pre_buffer=False) as parquet:
            for _ in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                pass
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_transient(error):
            raise UnavailableError(f"cannot read a data file: {error}") from error
        return f"it cannot be read: {error}"
    return None


class VerifiedFiles:
    """Verifies each data file once per process. Does not detect later damage. Safe for threads."""

    def __init__(self) -> None:
        self._names = BoundedCache[str](_NAMES_BYTES_MAX, len)

    def verify(self, root: DataRoot, path: str) -> None:
        """Raises DataError if the file is damaged, StateMovedOnError if it is gone."""
        self._names.get(root.url_of(path), lambda: _verified(root, path))


def _verified(root: DataRoot, path: str) -> str:
    verify_bytes(root, path)
    return path
