"""Parquet files in memory, of chosen pages of a data file, which Arrow decodes.

Arrow has no interface to decode single pages. So the pages are put into a file with a new footer.
Pages compressed by zstd are decompressed before, because Arrow allocates a context for each page
(apache/arrow#48187), which takes longer than to decompress one of a few hundred rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import pack
from typing import Any

import pyarrow as pa
from pyarrow.parquet.core import ParquetReader

from sleeper.datafiles.engine.parquet_footer import MAGIC
from sleeper.datafiles.engine.thrift import (
    BINARY,
    INT32,
    STRUCT,
    integer,
    list_of,
    text,
)
from sleeper.datafiles.pages.file_pages import (
    ZSTD,
    Leaf,
    StoredField,
    UnknownLayoutError,
    schema_of,
)
from sleeper.datafiles.pages.page_bytes import StoredPage, check_size, count_values, open_pages

_UNCOMPRESSED = 0


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
            schema_of(tuple(fields)),
            b"\x16" + integer(rows),
            b"\x19" + list_of(STRUCT, groups),
            b"\x28" + text(created_by),
            b"\x00",
        )
    )
    file.add(footer + pack("<I", len(footer)) + MAGIC)
    try:
        # `ParquetFile` takes longer to prepare its paths than to decode a page.
        reader = ParquetReader()
        reader.open(pa.BufferReader(file.content()))
        table: pa.Table = reader.read_all(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnknownLayoutError(f"pages cannot be decoded: {error}") from error
    if table.num_rows != rows:
        raise UnknownLayoutError(f"pages have {table.num_rows} rows (expected {rows})")
    return table


class _File:
    """The parts of a file in order, and its size."""

    def __init__(self) -> None:
        self._parts: list[Any] = [MAGIC]
        self._size = len(MAGIC)

    def add(self, *parts: Any) -> None:
        """Appends bytes or buffers. UnknownLayoutError if they are too many."""
        self._parts += parts
        self._size += sum(map(len, parts))
        check_size(self._size)

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
        start = data_at = self._size
        pages = chunk.pages if chunk.dictionary is None else (chunk.dictionary, *chunk.pages)
        opened = open_pages(pages) if chunk.codec == ZSTD else None
        codec = chunk.codec if opened is None else _UNCOMPRESSED
        parts = [data[at : at + size] for data, at, size in pages] if opened is None else opened
        self.add(*parts)
        dictionary = b""
        if chunk.dictionary is not None:
            data_at += sum(map(len, parts[: len(parts) // len(pages)]))
            dictionary = b"\x26" + integer(start)
        # Each row of other columns has any number of values.
        values = rows if leaf.is_flat else sum(map(count_values, chunk.pages))
        size = integer(self._size - start)
        metadata = (
            _chunk_head(leaf),
            integer(codec),
            b"\x16",
            integer(values),
            b"\x16",
            size,
            b"\x16",
            size,
            b"\x26",
            integer(data_at),
            dictionary,
            b"\x00\x00",
        )
        return b"".join(metadata)


@lru_cache(maxsize=1024)
def _chunk_head(leaf: Leaf) -> bytes:
    """Returns the start of a column chunk: offset, type, encodings and path."""
    encodings = list_of(INT32, [b"\x00"])
    path = list_of(BINARY, [text(name) for name in leaf.path])
    kind = integer(leaf.physical_type)
    return b"".join((b"\x26\x00\x1c\x15", kind, b"\x19", encodings, b"\x19", path, b"\x15"))
