"""The `.checksum` sidecar: hashes of a data file's bytes, which detect damage.

A file is hashed in adjacent *sections*: the leading magic, each row group, and the rest (page
index and footer). A reader of some row groups can thus verify its bytes, including headers and
footer, which page checksums do not cover. The sidecar is text: the hash's name (XXH3, 128 bits),
a line with end offset and digest for each section, and the digest of these lines, which
distinguishes a damaged sidecar from a damaged file. Earlier versions wrote one line: name and
digest of the whole file.
"""

import bisect
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from sleeper.errors import DataError
from sleeper.files import CHECKSUM_SUFFIX
from sleeper.storage.location import DataRoot

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

    def digest_at(self, place: tuple[int, int]) -> str:
        """Returns the digest of the section at these offsets. ValueError if there is none."""
        index = bisect.bisect_left(self.sections, place[0], key=lambda s: s.start)
        section = self.sections[index]
        if (section.start, section.end) != place:
            raise ValueError(f"bytes {place[0]} to {place[1]} are no section of its checksum")
        return section.digest

    def write_sidecar(self, root: DataRoot, path: str) -> str:
        """Writes the sidecar of the file and returns its suffix."""
        with root.sink(path + CHECKSUM_SUFFIX) as sink:
            sink.write(self.to_bytes())
        return CHECKSUM_SUFFIX


def checksum_from_bytes(content: bytes, path: str) -> FileChecksum:
    """Parses a sidecar. DataError names the path if it is damaged or of another format."""
    first, *lines = content.decode(errors="replace").splitlines()[:-1] or [""]
    if whole := _WHOLE_FILE.fullmatch(content):
        return FileChecksum((Section(0, None, whole[1].decode()),))
    listed = content[: content.rstrip(b"\n").rfind(b"\n") + 1]
    if first != f"{_NAME} {_SECTIONS}" or content != listed + _last_line(listed):
        raise DataError(f"sidecar {path} is no checksum by {_NAME}: {content[:60]!r}")
    if not lines:
        raise DataError(f"sidecar {path} has no sections")
    try:
        ends = [(int(end), digest) for end, digest in (line.split(" ") for line in lines)]
    except ValueError as error:
        raise DataError(f"sidecar {path} is no checksum by {_NAME}: {error}") from error
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
