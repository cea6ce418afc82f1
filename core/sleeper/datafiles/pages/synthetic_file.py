"""Parquet files in memory, of chosen pages of a data file, which Arrow decodes.

Arrow has no interface to decode single pages. So the pages are put into a file with a new footer.
Pages compressed by zstd are decompressed before, because Arrow allocates a context for each page
(apache/arrow#48187), which takes longer than to decompress one of a few hundred rows.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from sleeper.datafiles.engine.parquet_footer import MAGIC
from sleeper.datafiles.engine.thrift import (
    BINARY,
    INT32,
    STRUCT,
    integer,
    list_of,
    read_varint,
    text,
    varint,
)
from sleeper.datafiles.pages.file_pages import (
    ZSTD,
    Leaf,
    StoredField,
    UnknownLayoutError,
    schema_of,
)

_UNCOMPRESSED = 0
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_INT32_FIELD = 0x15
_PAGE_BYTES_MAX = 256 * 1024**2
_threads = threading.local()


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page as it is in the file: `content` from `at`, `size` bytes with its header."""

    content: bytes
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """The chosen pages of a leaf column in a row group, in order, and its dictionary, if any."""

    codec: int
    dictionary: StoredPage | None
    pages: Sequence[StoredPage]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of a row group: how many, and a chunk of each leaf column with exactly these rows."""

    rows: int
    chunks: Sequence[StoredChunk]


def join_rows(parts: Sequence[StoredRows]) -> Sequence[StoredRows]:
    """Returns the rows in one part if no chunk has a dictionary, which is of its row group."""
    if len(parts) < 2:
        return parts
    columns = list(zip(*(part.chunks for part in parts), strict=True))
    for chunks in columns:
        if any(each.dictionary or each.codec != chunks[0].codec for each in chunks):
            return parts
    joined = [
        StoredChunk(chunks[0].codec, None, [page for each in chunks for page in each.pages])
        for chunks in columns
    ]
    return [StoredRows(sum(part.rows for part in parts), joined)]


def decode_rows(
    fields: Sequence[StoredField],
    leaves: Sequence[Leaf],
    parts: Sequence[StoredRows],
    created_by: bytes,
) -> pa.Table:
    """Returns the rows of all parts, with these columns. `leaves` are theirs, in order.

    UnknownLayoutError if a page has a layout that only the engine reads, or is damaged.
    """
    file = _File()
    groups = [file.add_group(leaves, part) for part in parts]
    rows = sum(part.rows for part in parts)
    footer = b"".join(
        (
            schema_of(fields),
            b"\x16" + integer(rows),
            b"\x19" + list_of(STRUCT, groups),
            b"\x28" + text(created_by),
            b"\x00",
        )
    )
    file.add(footer + pack("<I", len(footer)) + MAGIC)
    try:
        with pq.ParquetFile(pa.BufferReader(file.content()), pre_buffer=False) as parquet:
            table = parquet.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnknownLayoutError(f"pages cannot be decoded: {error}") from error
    if table.num_rows != rows:
        raise UnknownLayoutError(f"pages have {table.num_rows} rows (expected {rows})")
    return table


class _File:
    """The parts of a file in order, and its size."""

    def __init__(self) -> None:
        self._parts = [MAGIC]
        self._size = len(MAGIC)

    def add(self, part: bytes) -> None:
        """Appends bytes."""
        self._parts.append(part)
        self._size += len(part)

    def content(self) -> bytes:
        """Returns all bytes."""
        return b"".join(self._parts)

    def add_group(self, leaves: Sequence[Leaf], part: StoredRows) -> bytes:
        """Appends the pages of a row group, and returns its encoded metadata."""
        start = self._size
        columns = [
            self._add_chunk(leaf, chunk, part.rows)
            for leaf, chunk in zip(leaves, part.chunks, strict=True)
        ]
        size, rows = integer(self._size - start), integer(part.rows)
        return b"".join((b"\x19", list_of(STRUCT, columns), b"\x16", size, b"\x16", rows, b"\x00"))

    def _add_chunk(self, leaf: Leaf, chunk: StoredChunk, rows: int) -> bytes:
        start = self._size
        pages = chunk.pages if chunk.dictionary is None else (chunk.dictionary, *chunk.pages)
        headers = [_read_header(page) for page in pages]
        is_opened = chunk.codec == ZSTD and all(each.is_simple for each in headers)
        data_at, values = start, 0
        for page, header in zip(pages, headers, strict=True):
            if header.kind == _DICTIONARY_PAGE:
                data_at = start + self._add_page(page, header, is_opened)
            else:
                self._add_page(page, header, is_opened)
                values += header.values
        if leaf.is_flat and values != rows:
            raise UnknownLayoutError(f"pages have {values} values of a column (expected {rows})")
        codec = _UNCOMPRESSED if is_opened else chunk.codec
        size = integer(self._size - start)
        parts = [
            b"\x26\x00\x1c\x15",
            integer(leaf.physical_type),
            b"\x19",
            list_of(INT32, [b"\x00"]),
            b"\x19",
            list_of(BINARY, [text(name) for name in leaf.path]),
            b"\x15",
            integer(codec),
            b"\x16",
            integer(values),
            b"\x16",
            size,
            b"\x16",
            size,
            b"\x26",
            integer(data_at),
            b"" if chunk.dictionary is None else b"\x26" + integer(start),
            b"\x00\x00",
        ]
        return b"".join(parts)

    def _add_page(self, page: StoredPage, header: "_Header", is_opened: bool) -> int:
        """Appends a page, and returns its bytes."""
        before = self._size
        if is_opened:
            self.add(header.opened)
            body = memoryview(page.content)[header.end : page.at + page.size]
            self.add(_decompress(body, header.uncompressed_bytes))
        else:
            self.add(page.content[page.at : page.at + page.size])
        return self._size - before


@dataclass(frozen=True, slots=True)
class _Header:
    """A page header: its end in the content, and the header of the uncompressed page.

    A page `is_simple` if it is compressed as a whole.
    """

    kind: int
    is_simple: bool
    values: int
    uncompressed_bytes: int
    end: int
    opened: bytes


def _read_header(page: StoredPage) -> _Header:
    """Parses a page header by the layout that all writers have: fields in ascending order."""
    data, at = page.content, page.at
    kind = data[at + 1] >> 1
    uncompressed, after = read_varint(data, at + 3)
    if data[at] != _INT32_FIELD or data[at + 2] != _INT32_FIELD or data[after] != _INT32_FIELD:
        raise UnknownLayoutError("a page header has an unknown layout")
    compressed, after = read_varint(data, after + 1)
    head = data[after]
    end = at + page.size - (compressed >> 1)
    if head == _INT32_FIELD:
        # A checksum of the compressed bytes, which the new header lacks.
        _, after = read_varint(data, after + 1)
        head = data[after] + 0x10
    body = data[after + 1 : end]
    if not body or body[0] != _INT32_FIELD or end > at + page.size:
        raise UnknownLayoutError("a page header has an unknown layout")
    values, _ = read_varint(body, 1)
    size = varint(uncompressed)
    start = bytes((_INT32_FIELD, kind << 1, _INT32_FIELD))
    opened = b"".join((start, size, b"\x15", size, bytes((head,)), body))
    return _Header(
        kind, kind in (_DATA_PAGE, _DICTIONARY_PAGE), values >> 1, uncompressed >> 1, end, opened
    )


def _decompress(content: memoryview, size: int) -> bytes:
    if size > _PAGE_BYTES_MAX:
        raise UnknownLayoutError(f"a page has {size} bytes")
    if not hasattr(_threads, "zstd"):
        _threads.zstd = zstandard.ZstdDecompressor()
    try:
        found: bytes = _threads.zstd.decompress(content, max_output_size=size)
    except zstandard.ZstdError as error:
        raise UnknownLayoutError(f"a page cannot be decompressed: {error}") from error
    if len(found) != size:
        raise UnknownLayoutError(f"a page has {len(found)} bytes (expected {size})")
    return found
