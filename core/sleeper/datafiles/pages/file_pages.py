"""The pages of a data file: places, rows, and the smallest keys of each, from its page index.

Parquet's page index has an *offset index* per column chunk, which lists the places and first rows
of its pages, and a *column index* with their bounds. Both stand between the row groups and the
footer. A file's end is read once; the indexes of a row group are parsed when a lookup needs them.

Keys ascend in a file, so the smallest key of each page locates a key. Bounds may be truncated:
then they are prefixes of the smallest key, and so smaller.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import gt
from typing import Any

import numpy as np
import numpy.typing as npt

from sleeper.datafiles.engine.thrift import (
    LIST,
    STRUCT,
    Structure,
    integer,
    list_of,
    read_list_head,
    read_structure,
    read_varint,
    text,
)

Rows = npt.NDArray[np.int64]
_INTEGERS: dict[int, str] = {1: "<i4", 2: "<i8"}
# Physical types
BYTE_ARRAY = 6
_INT96 = 3
ZSTD = 6
# Tokens of a page location: three fields, each with a head, and the end.
_LOCATION_TOKENS = 7
_LOCATION_HEADS = (0x16, 0x15, 0x16, 0x00)
_PARSED_SHARE = 3


class UnknownLayoutError(Exception):
    """The file has no page index, or a layout that only the engine reads."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk: the pages of a leaf column in a row group. Places are offsets in the file."""

    codec: int
    start: int
    size: int
    offset_index: tuple[int, int]
    column_index: tuple[int, int] | None
    smallest: bytes | None


@dataclass(frozen=True, slots=True)
class Pages:
    """Places, bytes and first rows of a chunk's pages. `first_rows` ends with the last row's end.

    Rows count from the start of the file.
    """

    offsets: Rows
    sizes: Rows
    first_rows: Rows


@dataclass(frozen=True, slots=True)
class PageOffsets:
    """Offsets and bytes of pages. The first is the dictionary, if the chunk has one."""

    pages: list[tuple[int, int]]
    has_dictionary: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column: a field, or the keys, values or elements within one."""

    path: tuple[bytes, ...]
    physical_type: int

    @property
    def is_flat(self) -> bool:
        """Whether each row has one value."""
        return len(self.path) == 1


@dataclass(frozen=True, slots=True)
class StoredField:
    """A column of the file: its schema elements, encoded, and the numbers of its leaves."""

    elements: tuple[bytes, ...]
    leaves: tuple[int, ...]


@dataclass
class FilePages:
    """The pages of a file. Safe for threads.

    `end` are the bytes from `end_at` to the footer, `row_bytes` the mean bytes of a decoded row.
    """

    fields: dict[str, StoredField]
    leaves: tuple[Leaf, ...]
    chunks: tuple[tuple[Chunk, ...], ...]
    first_rows: tuple[int, ...]
    row_bytes: float
    created_by: bytes
    end: bytes
    end_at: int
    _pages: dict[tuple[int, int], Pages] = field(default_factory=dict)
    _bounds: dict[tuple[int, int, bool], Sequence[Any]] = field(default_factory=dict)
    _aligned: dict[int, frozenset[int]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.first_rows[-1]

    @property
    def kept_bytes(self) -> int:
        """The estimated size in memory when all indexes are parsed."""
        return len(self.end) * _PARSED_SHARE + 300 * len(self.chunks) * len(self.leaves)

    def pages(self, group: int, leaf: int) -> Pages:
        """Returns the pages of a leaf column in a row group."""
        result = self._pages.get((group, leaf))
        if result is None:
            at, size = self.chunks[group][leaf].offset_index
            rows = self.first_rows[group], self.first_rows[group + 1]
            result = read_offset_index(self._bytes_at(at, size), *rows)
            self._pages[group, leaf] = result
        return result

    def locate(self, group: int, leaf: int, numbers: Rows) -> PageOffsets:
        """Returns the places of pages of a leaf column, and of the dictionary before them."""
        pages = self.pages(group, leaf)
        offsets, sizes = pages.offsets[numbers].tolist(), pages.sizes[numbers].tolist()
        matches = list(zip(offsets, sizes, strict=True))
        start, first = self.chunks[group][leaf].start, int(pages.offsets[0])
        if start < first:
            matches.insert(0, (start, first - start))
        return PageOffsets(matches, start < first)

    def bytes_of_groups(self, groups: Iterable[int]) -> int:
        """Returns the bytes of row groups in the file."""
        return sum(chunk.size for group in groups for chunk in self.chunks[group])

    def are_aligned(self, groups: Iterable[int], names: Sequence[str]) -> bool:
        """Returns whether the pages of all columns begin with the same rows in the row groups."""
        leaves = [leaf for name in names for leaf in self.fields[name].leaves]
        return all(self._is_aligned(group, leaves) for group in groups)

    def _is_aligned(self, group: int, leaves: Sequence[int]) -> bool:
        aligned = self._aligned.get(group)
        if aligned is None:
            first = self.pages(group, 0).first_rows
            every = range(len(self.leaves))
            aligned = frozenset(
                i for i in every if np.array_equal(self.pages(group, i).first_rows, first)
            )
            self._aligned[group] = aligned
        return aligned.issuperset(leaves)

    def smallest(self, group: int, leaf: int) -> Sequence[Any]:
        """Returns lower bounds of the pages' values: integers, or bytes."""
        return self._bounds_of(group, leaf, False)

    def largest(self, group: int, leaf: int) -> Sequence[Any]:
        """Returns upper bounds of the pages' values: integers, or bytes."""
        return self._bounds_of(group, leaf, True)

    @cached_property
    def smallest_of_groups(self) -> list[Any]:
        """Lower bounds of the first field in each row group."""
        kind = self.leaves[0].physical_type
        return [
            self.smallest(group, 0)[0]
            if chunks[0].smallest is None
            else _plain_value(chunks[0].smallest, kind)
            for group, chunks in enumerate(self.chunks)
        ]

    def _bounds_of(self, group: int, leaf: int, is_largest: bool) -> Sequence[Any]:
        result = self._bounds.get((group, leaf, is_largest))
        if result is None:
            position = self.chunks[group][leaf].column_index
            if position is None:
                raise UnknownLayoutError("a key column has no page bounds")
            pages = len(self.pages(group, leaf).sizes)
            kind = self.leaves[leaf].physical_type
            result = read_page_bounds(self._bytes_at(*position), kind, is_largest, pages)
            if leaf == 0 and any(map(gt, result, result[1:])):
                raise UnknownLayoutError("the bounds of a row group's pages do not ascend")
            self._bounds[group, leaf, is_largest] = result
        return result

    def _bytes_at(self, at: int, size: int) -> bytes:
        start = at - self.end_at
        if start < 0 or start + size > len(self.end):
            raise UnknownLayoutError("the page index is not at the file's end")
        return self.end[start : start + size]


def read_file_pages(footer: bytes, read: Callable[[int], tuple[int, bytes]]) -> FilePages:
    """Returns the pages of a file from its footer.

    `read` returns the offset and bytes from at most an offset to the footer. UnknownLayoutError if
    only the engine can read the file.
    """
    try:
        metadata, _ = read_structure(footer)
        fields, leaves = _read_fields(footer, metadata)
        groups = metadata[4]
        chunks = tuple(
            tuple(_chunk(each, leaf) for each, leaf in zip(group[1], leaves, strict=True))
            for group in groups
        )
        first_rows = (0, *accumulate(group[3] for group in groups))
        created_by = metadata.get(6, b"")
        size = sum(_decoded_bytes(each[3]) for group in groups for each in group[1])
        index_at = max((_end(each[3]) for group in groups for each in group[1]), default=0)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise UnknownLayoutError(f"the footer cannot be read: {error}") from error
    end_at, end = read(index_at)
    row_bytes = size / max(first_rows[-1], 1)
    return FilePages(fields, leaves, chunks, first_rows, row_bytes, created_by, end, end_at)


def _decoded_bytes(metadata: Structure) -> int:
    """Returns the bytes of a column chunk without compression and dictionary, if these are known.

    Size statistics tell the bytes of text, and writers of the last years have them.
    """
    return int(max(metadata[6], metadata.get(16, {}).get(1, 0)))


def _start(metadata: Structure) -> int:
    starts = [metadata[9]]
    if metadata.get(11):
        starts.append(metadata[11])
    return int(min(starts))


def _end(metadata: Structure) -> int:
    return _start(metadata) + int(metadata[7])


def _chunk(chunk: Structure, leaf: Leaf) -> Chunk:
    metadata = chunk[3]
    if 1 in chunk or 8 in chunk or tuple(metadata[3]) != leaf.path:
        raise UnknownLayoutError("a column chunk is in another file, or encrypted")
    return Chunk(
        codec=metadata[4],
        start=_start(metadata),
        size=metadata[7],
        offset_index=(chunk[4], chunk[5]),
        column_index=(chunk[6], chunk[7]) if 6 in chunk else None,
        smallest=metadata.get(12, {}).get(6),
    )


def _read_fields(
    footer: bytes, metadata: Structure
) -> tuple[dict[str, StoredField], tuple[Leaf, ...]]:
    """Returns the columns and leaves of a footer's schema, which is a tree in preorder."""
    encoded = _encoded_elements(footer)
    elements = metadata[2]
    fields: dict[str, StoredField] = {}
    leaves: list[Leaf] = []

    def walk(at: int, path: tuple[bytes, ...]) -> int:
        element = elements[at]
        path = (*path, element[4])
        at += 1
        if not element.get(5):
            if element[1] == _INT96:
                raise UnknownLayoutError("a column has the type INT96")
            leaves.append(Leaf(path, element[1]))
            return at
        for _ in range(element[5]):
            at = walk(at, path)
        return at

    at = 1
    for _ in range(elements[0][5]):
        start, first = at, len(leaves)
        at = walk(at, ())
        name = elements[start][4].decode()
        numbers = tuple(range(first, len(leaves)))
        fields[name] = StoredField(encoded[start:at], numbers)
    return fields, tuple(leaves)


def _encoded_elements(footer: bytes) -> tuple[bytes, ...]:
    # The version is the first field, the list of schema elements the second.
    if footer[0] != 0x15:
        raise UnknownLayoutError("the footer does not begin with a version")
    _, at = read_varint(footer, 1)
    if footer[at] != 1 << 4 | LIST:
        raise UnknownLayoutError("the footer has no schema")
    count, kind, at = read_list_head(footer, at + 1)
    if kind != STRUCT:
        raise UnknownLayoutError("the footer has no schema")
    encoded = []
    for _ in range(count):
        start = at
        _, at = read_structure(footer, at)
        encoded.append(footer[start:at])
    return tuple(encoded)


@lru_cache(maxsize=256)
def schema_of(fields: tuple[StoredField, ...]) -> bytes:
    """Returns the start of a footer of these columns: version and schema."""
    root = b"\x48" + text(b"schema") + b"\x15" + integer(len(fields)) + b"\x00"
    elements = [root, *(element for each in fields for element in each.elements)]
    return b"\x15" + integer(1) + b"\x19" + list_of(STRUCT, elements)


def read_offset_index(index: bytes, first_row: int, end_row: int) -> Pages:
    """Parses an offset index of a row group of these rows.

    Each page location is three numbers, with heads that do not vary, so all are parsed at once.
    """
    try:
        if index[0] != 1 << 4 | LIST:
            raise ValueError("it has no page locations")
        count, kind, at = read_list_head(index, 1)
        numbers = _varints(index, at, count * _LOCATION_TOKENS).reshape(count, _LOCATION_TOKENS)
    except (IndexError, ValueError) as error:
        raise UnknownLayoutError(f"an offset index cannot be read: {error}") from error
    if kind != STRUCT or not (numbers[:, ::2] == _LOCATION_HEADS).all():
        raise UnknownLayoutError("an offset index has an unknown layout")
    # Offsets, sizes and rows are never negative, so their sign is zero.
    offsets, sizes, starts = (numbers[:, column] >> 1 for column in (1, 3, 5))
    first_rows = np.append(starts, end_row - first_row) + first_row
    is_whole = count and starts[0] == 0 and (np.diff(first_rows) > 0).all() and (sizes > 0).all()
    if not is_whole or (np.diff(offsets) <= 0).any():
        raise UnknownLayoutError("an offset index is not in order")
    return Pages(offsets, sizes, first_rows)


def _varints(data: bytes, at: int, count: int) -> Rows:
    """Returns so many adjacent numbers."""
    taken = np.frombuffer(data, np.uint8, offset=at)
    ends = np.flatnonzero(taken < 128)[:count]
    if len(ends) < count:
        raise IndexError("it is torn")
    if not count:
        return np.zeros(0, np.int64)
    taken = taken[: ends[-1] + 1]
    starts = np.concatenate(([0], ends[:-1] + 1))
    positions = np.arange(len(taken)) - np.repeat(starts, ends - starts + 1)
    if positions.max() > 8:
        raise ValueError("a number is too large")
    return np.add.reduceat((taken & 127).astype(np.int64) << (7 * positions), starts)


def read_page_bounds(
    index: bytes, physical_type: int, is_largest: bool, pages: int
) -> Sequence[Any]:
    """Returns the lower or upper bounds of a column's pages, from its column index."""
    try:
        number = 3 if is_largest else 2
        values, _ = read_structure(index, last=number)
        bounds = values[number]
        if any(values[1]) or len(bounds) != pages:
            raise UnknownLayoutError("a key column has pages without bounds")
        if physical_type == BYTE_ARRAY:
            return list(bounds)
        kind = np.dtype(_INTEGERS[physical_type])
        result: list[int] = np.frombuffer(b"".join(bounds), kind, pages).tolist()
        return result
    except (IndexError, KeyError, ValueError) as error:
        raise UnknownLayoutError(f"a column index cannot be read: {error}") from error


def _plain_value(value: bytes, physical_type: int) -> Any:
    if physical_type == BYTE_ARRAY:
        return value
    try:
        return int(np.frombuffer(value, np.dtype(_INTEGERS[physical_type]), 1)[0])
    except (KeyError, ValueError) as error:
        raise UnknownLayoutError("the bounds of a row group cannot be read") from error
