"""Reads the rows of regions from the pages of a data file that may hold them."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa

from sleeper.datafiles.conversions import integer_array
from sleeper.datafiles.key_values import as_key_column
from sleeper.datafiles.pages.file_pages import (
    FilePages,
    Rows,
    UnknownLayoutError,
)
from sleeper.datafiles.pages.page_bytes import StoredPage, check_size
from sleeper.datafiles.pages.selection import Selection, find_keys, find_rows, select_pages
from sleeper.datafiles.pages.synthetic_file import (
    StoredChunk,
    StoredRows,
    decode_rows,
    join_rows,
)
from sleeper.partitions.region import Region
from sleeper.schema.model import Field

PagesByGroup = Mapping[int, Rows]
"""Numbers of pages, ascending, by row group."""


class ByteSource(Protocol):
    """A file's bytes. Reading a gap of up to `gap_bytes_max` is faster than another read."""

    @property
    def gap_bytes_max(self) -> int: ...

    def read(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Returns the bytes between each start and end."""
        ...


def select_regions(file: FilePages, keys: Sequence[Field], regions: Sequence[Region]) -> Selection:
    """Returns the pages that may hold rows of the regions. `keys` are the row key fields.

    UnknownLayoutError if only the engine can read the file.
    """
    leaves = [_one_leaf(file, field.name) for field in keys]
    if leaves[0] != 0:
        raise UnknownLayoutError("the first column is not the first row key")
    return select_pages(file, leaves, regions)


def read_selection(
    file: FilePages,
    keys: Sequence[Field],
    selection: Selection,
    names: Sequence[str],
    source: ByteSource,
) -> pa.Table | None:
    """Returns the rows of the selection, in file order, with the named columns that it has.

    None if there are no such rows. UnknownLayoutError if only the engine can read the file, or
    its pages are damaged.
    """
    if not selection.pages:
        return None
    key_names = [field.name for field in keys]
    names = [name for name in names if name in file.fields]
    columns = tuple(dict.fromkeys((*key_names, *names)))
    reader = _Reader(file, source)
    spans = _Spans.of_pages(file, _one_leaf(file, key_names[0]), selection.pages)
    if file.are_aligned(selection.pages, columns):
        table = reader.read_pages(columns, selection.pages)
    else:
        table = reader.read_rows(key_names, spans.all_rows())
    key_columns = [as_key_column(_whole(table.column(name))) for name in key_names]
    if selection.keys:
        result = find_keys(key_columns[0], selection.keys)
    else:
        limits = spans.places(np.array([span for _, span in selection.regions]))
        regions = [region for region, _ in selection.regions]
        result = find_rows(key_columns, keys, list(zip(regions, limits, strict=True)))
    if not len(result):
        return None
    others = [name for name in names if name not in table.schema.names]
    taken = _take(table, result)
    if others:
        more = reader.read_rows(others, spans.all_rows()[result])
        for name in others:
            taken = taken.append_column(more.schema.field(name), more.column(name))
    return taken.select(names)


def find_pages(
    file: FilePages, keys: Sequence[Field], selection: Selection, names: Sequence[str]
) -> list[tuple[int, int]]:
    """Returns offsets and sizes of all pages that `read_selection` may read."""
    columns = {*(field.name for field in keys), *names} & file.fields.keys()
    if file.are_aligned(selection.pages, tuple(columns)):
        return [
            page
            for name in columns
            for leaf in file.fields[name].leaves
            for group, numbers in selection.pages.items()
            for page in file.locate(group, leaf, numbers).pages
        ]
    spans = _Spans.of_pages(file, _one_leaf(file, keys[0].name), selection.pages)
    rows = spans.all_rows()
    pages = []
    for name in columns:
        leaves = file.fields[name].leaves
        for each in _pages_of_rows(file, leaves, rows)[0]:
            for leaf, numbers in zip(leaves, each.numbers, strict=True):
                pages += file.locate(each.group, leaf, numbers).pages
    return pages


def join_ranges(places: Sequence[tuple[int, int]], gap_bytes_max: int) -> list[tuple[int, int]]:
    """Returns runs, as starts and ends, of near pages of these offsets and sizes, ascending."""
    runs: list[tuple[int, int]] = []
    for at, size in sorted(places):
        if runs and at - runs[-1][1] <= gap_bytes_max:
            runs[-1] = (runs[-1][0], at + size)
        else:
            runs.append((at, at + size))
    return runs


def _one_leaf(file: FilePages, name: str) -> int:
    leaves = file.fields[name].leaves if name in file.fields else ()
    if len(leaves) != 1:
        raise UnknownLayoutError(f"key field {name!r} is not a column")
    return leaves[0]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _take(table: pa.Table, positions: Rows) -> pa.Table:
    """Returns the rows at ascending places."""
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == len(positions):
        return table.slice(first, len(positions))
    return table.take(integer_array(positions))


@dataclass(frozen=True, slots=True)
class _Spans:
    """Rows of a file in ascending spans without overlap, which a table has one after another."""

    starts: Rows
    stops: Rows

    @staticmethod
    def of_pages(file: FilePages, leaf: int, pages: PagesByGroup) -> "_Spans":
        """Returns the rows of pages of a leaf column."""
        firsts = [(file.pages(group, leaf).first_rows, each) for group, each in pages.items()]
        starts = np.concatenate([rows[each] for rows, each in firsts])
        stops = np.concatenate([rows[each + 1] for rows, each in firsts])
        return _Spans(starts, stops)

    def all_rows(self) -> Rows:
        """Returns each row."""
        sizes = self.stops - self.starts
        ends = np.cumsum(sizes)
        rows: Rows = np.arange(ends[-1]) + np.repeat(self.starts - (ends - sizes), sizes)
        return rows

    def places(self, spans: Rows) -> list[tuple[int, int]]:
        """Returns the places in the table of spans that begin and end with rows of this."""
        if len(self.starts) == 1:
            return [tuple(each) for each in (spans - self.starts[0]).tolist()]
        sizes = self.stops - self.starts
        ends = np.cumsum(sizes)
        first = np.searchsorted(self.starts, spans[:, 0])
        last = np.searchsorted(self.stops, spans[:, 1])
        return list(zip((ends - sizes)[first].tolist(), ends[last].tolist(), strict=True))

    def positions_of_rows(self, rows: Rows) -> Rows:
        """Returns the places in the table of rows within the spans."""
        sizes = self.stops - self.starts
        before = np.cumsum(sizes) - sizes
        span = np.searchsorted(self.starts, rows, "right") - 1
        positions: Rows = rows - self.starts[span] + before[span]
        return positions


class _Reader:
    """Reads pages of a file and decodes them."""

    def __init__(self, file: FilePages, source: ByteSource) -> None:
        self._file = file
        self._source = source

    def read_rows(self, names: Sequence[str], rows: Rows) -> pa.Table:
        """Returns the columns of ascending rows, whose pages need not begin with the same rows."""
        columns = {}
        for name in names:
            groups, spans = _pages_of_rows(self._file, self._file.fields[name].leaves, rows)
            table = self._decode([name], groups)
            columns[name] = _take(table, spans.positions_of_rows(rows)).column(name)
        return pa.table(columns)

    def read_pages(self, names: Sequence[str], pages: PagesByGroup) -> pa.Table:
        """Returns the rows of the same pages of all leaves of the columns."""
        leaves = [leaf for name in names for leaf in self._file.fields[name].leaves]
        groups = []
        for group, numbers in pages.items():
            first_rows = self._file.pages(group, leaves[0]).first_rows
            rows = int((first_rows[numbers + 1] - first_rows[numbers]).sum())
            groups.append(_GroupPages(group, rows, [numbers] * len(leaves)))
        return self._decode(names, groups)

    def _decode(self, names: Sequence[str], groups: Sequence["_GroupPages"]) -> pa.Table:
        fields = [self._file.fields[name] for name in names]
        leaves = [leaf for each in fields for leaf in each.leaves]
        located = [
            self._file.locate(each.group, leaf, numbers)
            for each in groups
            for leaf, numbers in zip(leaves, each.numbers, strict=True)
        ]
        stored = iter(self._fetch([page for each in located for page in each.pages]))
        positions = iter(located)
        parts = []
        for each in groups:
            chunks = []
            for leaf in leaves:
                position = next(positions)
                pages = list(islice(stored, len(position.pages)))
                dictionary = pages.pop(0) if position.has_dictionary else None
                codec = self._file.chunks[each.group][leaf].codec
                chunks.append(StoredChunk(codec, dictionary, pages))
            parts.append(StoredRows(each.rows, chunks))
        types = [self._file.leaves[leaf] for leaf in leaves]
        table = decode_rows(fields, types, join_rows(parts), self._file.created_by)
        return table if len(parts) == 1 else table.combine_chunks()

    def _fetch(self, pages: Sequence[tuple[int, int]]) -> list[StoredPage]:
        """Returns pages of these offsets and sizes, read in runs of near ones."""
        check_size(sum(size for _, size in pages))
        runs = join_ranges(pages, self._source.gap_bytes_max)
        starts = [start for start, _ in runs]
        contents = self._source.read(runs)
        result = []
        for at, size in pages:
            run = bisect_right(starts, at) - 1
            result.append((contents[run], at - starts[run], size))
        return result


@dataclass(frozen=True, slots=True)
class _GroupPages:
    """Pages of each leaf in a row group, that have the same rows."""

    group: int
    rows: int
    numbers: Sequence[Rows]


def _pages_of_rows(
    file: FilePages, leaves: Sequence[int], rows: Rows
) -> tuple[list["_GroupPages"], "_Spans"]:
    """Returns the pages of the leaves that have the rows, and all rows of these pages."""
    cuts = np.searchsorted(rows, file.first_rows)
    groups, starts, stops = [], [], []
    for group in np.flatnonzero(np.diff(cuts)).tolist():
        inside = rows[cuts[group] : cuts[group + 1]]
        first_rows = [file.pages(group, leaf).first_rows for leaf in leaves]
        # Pages of all leaves begin with these rows.
        common = first_rows[0]
        for others in first_rows[1:]:
            common = np.intersect1d(common, others, assume_unique=True)
        blocks = np.unique(np.searchsorted(common, inside, "right") - 1)
        start, stop = common[blocks], common[blocks + 1]
        numbers = [_pages_between(each, start, stop) for each in first_rows]
        groups.append(_GroupPages(group, int((stop - start).sum()), numbers))
        starts.append(start)
        stops.append(stop)
    return groups, _Spans(np.concatenate(starts), np.concatenate(stops))


def _pages_between(first_rows: Rows, starts: Rows, stops: Rows) -> Rows:
    """Returns the pages that begin and end within spans, which begin and end with pages."""
    first, end = np.searchsorted(first_rows, starts), np.searchsorted(first_rows, stops)
    return _Spans(first, end).all_rows()
