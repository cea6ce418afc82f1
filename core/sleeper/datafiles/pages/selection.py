"""The pages of a file that may hold rows of regions, and the rows of regions in decoded keys.

Rows are sorted by their keys, so both are binary searches in the first row key field. Further
fields narrow pages by their bounds, and rows by searches within equal values of the fields before.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import as_booleans, as_numbers, key_array
from sleeper.datafiles.pages.file_pages import FilePages
from sleeper.partitions.key_regions import KeyRegions
from sleeper.partitions.region import Range, Region, holds_one_value
from sleeper.schema.model import Field, KeyValue

Span = tuple[int, int]
"""A first row and the row after the last one."""
_NARROWED_PAGES_MIN = 3
_Indexes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Selection:
    """The pages of the first key field to read by row group, ascending, and each region's rows.

    The pages have `rows` rows. Of keys of one field, `keys` are those that the pages may hold,
    ascending, in place of regions.
    """

    pages: Mapping[int, _Indexes]
    regions: Sequence[tuple[Region, Span]]
    rows: int
    keys: Sequence[KeyValue] = ()

    @property
    def parts(self) -> int:
        """The number of regions or keys."""
        return len(self.regions) + len(self.keys)


def select_pages(
    file: FilePages, key_leaves: Sequence[int], regions: Sequence[Region]
) -> Selection:
    """Returns the pages that may hold rows of the regions. `key_leaves` are those of the keys."""
    if isinstance(regions, KeyRegions):
        return _select_pages_of_keys(file, key_leaves[0], regions.values)
    leaf = key_leaves[0]
    matches = [(region, list(_pages_of(file, key_leaves, region))) for region in regions]
    matches = [(region, groups) for region, groups in matches if groups]
    rows = [(region, _rows_of_pages(file, leaf, groups)) for region, groups in matches]
    if len(matches) == 1:
        ascending = {group: np.array(numbers) for group, numbers in matches[0][1]}
    else:
        pages: dict[int, set[int]] = defaultdict(set)
        for _, groups in matches:
            for group, numbers in groups:
                pages[group].update(numbers)
        ascending = {group: np.array(sorted(pages[group])) for group in sorted(pages)}
    return Selection(ascending, rows, _count_rows(file, leaf, ascending))


def _rows_of_pages(file: FilePages, leaf: int, groups: Sequence[tuple[int, Sequence[int]]]) -> Span:
    """Returns the rows from the first to the last one of pages of row groups."""
    (first_group, first), (last_group, last) = groups[0], groups[-1]
    start = file.pages(first_group, leaf).first_rows[first[0]]
    stop = file.pages(last_group, leaf).first_rows[last[-1] + 1]
    return int(start), int(stop)


def _count_rows(file: FilePages, leaf: int, pages: Mapping[int, _Indexes]) -> int:
    firsts = ((file.pages(group, leaf).first_rows, each) for group, each in pages.items())
    return sum(int((first[each + 1] - first[each]).sum()) for first, each in firsts)


def _select_pages_of_keys(file: FilePages, leaf: int, keys: Sequence[KeyValue]) -> Selection:
    """Returns the pages that may hold keys, which ascend."""
    values = [stored_value(key) for key in keys]
    pages: dict[int, _Indexes] = {}
    for group, (first, end) in _keys_of_groups(file.smallest_of_groups, values).items():
        smallest = file.smallest(group, leaf)
        numbers: set[int] = set()
        for value in values[first:end]:
            numbers.update(range(*_span_of_value(smallest, value)))
        if numbers:
            pages[group] = np.array(sorted(numbers))
    return Selection(pages, (), _count_rows(file, leaf, pages), keys)


def _keys_of_groups(smallest: Sequence[Any], values: Sequence[Any]) -> dict[int, Span]:
    """Returns the row groups that may hold values, ascending, and the places of their values."""
    result: dict[int, Span] = {}
    for index, value in enumerate(values):
        for group in range(*_span_of_value(smallest, value)):
            result[group] = (result.get(group, (index, 0))[0], index + 1)
    return result


def _span_of_value(smallest: Sequence[Any], value: Any) -> Span:
    """Returns the places whose values may include one."""
    start = stop = bisect_left(smallest, value)
    while stop < len(smallest) and smallest[stop] == value:
        stop += 1
    return _first_index(smallest, value, start), stop


def _pages_of(
    file: FilePages, key_leaves: Sequence[int], region: Region
) -> Iterable[tuple[int, Sequence[int]]]:
    """Yields row groups with their pages."""
    within = region.ranges[0]
    low = stored_value(within.min)
    high = None if within.max is None else stored_value(within.max)
    start, stop = _span(file.smallest_of_groups, low, high)
    for group in range(start, stop):
        smallest = file.smallest(group, key_leaves[0])
        numbers: Sequence[int] = range(*_span(smallest, low, high))
        if len(key_leaves) > 1 and len(numbers) >= _NARROWED_PAGES_MIN:
            numbers = _narrow(file, group, key_leaves, region, numbers)
        if numbers:
            yield group, numbers


def _span(smallest: Sequence[Any], low: Any, high: Any) -> Span:
    """Returns the places whose values may lie between `low` and `high`, None for no end."""
    start = _first_index(smallest, low, bisect_left(smallest, low))
    return start, len(smallest) if high is None else bisect_left(smallest, high)


def _first_index(smallest: Sequence[Any], value: Any, at: int) -> int:
    """Returns the first place that may have the value, which sorts to the place `at`."""
    start = at - 1
    if isinstance(value, bytes):
        # A prefix of the value may be a truncated bound, of a page that begins after the value.
        while start > 0 and value.startswith(smallest[start]):
            start -= 1
    return max(start, 0)


def _narrow(
    file: FilePages,
    group: int,
    key_leaves: Sequence[int],
    region: Region,
    numbers: Sequence[int],
) -> Sequence[int]:
    """Returns the pages whose bounds of the further key fields overlap the region."""
    first = file.pages(group, key_leaves[0]).first_rows
    for leaf, within in zip(key_leaves[1:], region.ranges[1:], strict=True):
        if not np.array_equal(file.pages(group, leaf).first_rows, first):
            continue
        smallest, largest = file.smallest(group, leaf), file.largest(group, leaf)
        low = stored_value(within.min)
        high = None if within.max is None else stored_value(within.max)
        numbers = [
            each
            for each in numbers
            if largest[each] >= low and (high is None or smallest[each] < high)
        ]
    return numbers


def stored_value(value: KeyValue) -> int | bytes:
    """Returns the value as bounds of pages have it."""
    return value.encode() if isinstance(value, str) else value


def find_keys(column: pa.Array, keys: Sequence[KeyValue]) -> _Indexes:
    """Returns the places of the rows with one of the keys, ascending. Rows and keys ascend."""
    values = key_array(keys, column.type)
    starts = as_numbers(pc.search_sorted(column, values, side="left")).astype(np.int64)
    stops = as_numbers(pc.search_sorted(column, values, side="right")).astype(np.int64)
    sizes = stops - starts
    if (sizes <= 1).all():
        single: _Indexes = starts[sizes > 0]
        return single
    ends = np.cumsum(sizes)
    result: _Indexes = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
    return result


def find_rows(
    columns: Sequence[pa.Array], keys: Sequence[Field], regions: Sequence[tuple[Region, Span]]
) -> _Indexes:
    """Returns the places of the rows in the regions, ascending.

    `columns` are the row key fields, in key order; the spans limit the search for each region.
    """
    values = [_reader(column) for column in columns]
    result: list[_Indexes] = []
    ends: list[Span] = []
    for region, span in regions:
        first = region.ranges[0]
        start, stop = _search(values[0], first, span)
        if len(columns) == 1:
            if ends and start == ends[-1][1]:
                ends[-1] = (ends[-1][0], stop)
            elif start < stop:
                ends.append((start, stop))
        else:
            result.append(_find_further(columns, values, keys, region, (start, stop)))
    result += [np.arange(start, stop) for start, stop in ends]
    if not result:
        return np.zeros(0, np.int64)
    rows = result[0] if len(result) == 1 else np.concatenate(result)
    return np.unique(rows) if len(columns) > 1 else rows


def _find_further(
    columns: Sequence[pa.Array],
    values: Sequence[Callable[[int], Any]],
    keys: Sequence[Field],
    region: Region,
    span: Span,
) -> _Indexes:
    """Returns the rows of the span, which are in the first range, that are in all others."""
    for index, within in enumerate(region.ranges[1:], 1):
        if not holds_one_value(keys[index - 1], region.ranges[index - 1]):
            return _filter(columns[index:], region.ranges[index:], span)
        span = _search(values[index], within, span)
    return np.arange(*span)


def _filter(columns: Sequence[pa.Array], ranges: Sequence[Range], span: Span) -> _Indexes:
    start, stop = span
    is_inside = np.ones(stop - start, np.bool_)
    for column, within in zip(columns, ranges, strict=True):
        values = column.slice(start, stop - start)
        is_inside &= as_booleans(pc.greater_equal(values, key_array([within.min], values.type)[0]))
        if within.max is not None:
            is_inside &= as_booleans(pc.less(values, key_array([within.max], values.type)[0]))
    return np.flatnonzero(is_inside) + start


def _search(value_at: Callable[[int], Any], within: Range, span: Span) -> Span:
    """Returns the rows of a range within a span of ascending values."""
    start, stop = span
    positions = range(stop)
    start = bisect_left(positions, stored_value(within.min), start, stop, key=value_at)
    if within.max is None or start == stop:
        return start, stop
    high = stored_value(within.max)
    # Mostly the range is one value, which one row has.
    for end in range(start, min(start + 2, stop)):
        if value_at(end) >= high:
            return start, end
    return start, bisect_left(positions, high, min(start + 2, stop), stop, key=value_at)


def _reader(column: pa.Array) -> Callable[[int], Any]:
    """Returns a function of a row's value, as bounds of pages have it."""
    if pa.types.is_integer(column.type):
        numbers: Callable[[int], Any] = as_numbers(column).__getitem__
        return numbers
    _, offsets, content = column.buffers()
    ends = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1]
    values = b"" if content is None else content.to_pybytes()
    return lambda position: values[ends[position] : ends[position + 1]]
