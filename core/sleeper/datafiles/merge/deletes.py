"""Finds the deleted rows of a file, batch by batch.

Deletes of single keys are sets of keys, in memory or in key files. Other regions are *boxes*: the
smallest and largest values of a batch select the few that it can overlap. Those that divide the
batch by one field only are searched, others are compared by whole columns. So the cost does not
grow with the number of deletes elsewhere.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_type, as_plain
from sleeper.datafiles.conversions import boolean_array
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.key_values import as_key_column, key_column_type
from sleeper.datafiles.merge.key_sets import KeySource, Mask, key_columns, listed_keys
from sleeper.files import KeyFile
from sleeper.partitions.region import Range, Region, holds_one_value, key_of_region
from sleeper.schema.model import Key, KeyValue, Schema, smallest_key_value
from sleeper.storage.location import DataRoot

_SEARCHED_MIN = 4
_NEAR_MAX = 16
_HALVED_ROWS_MIN = 64

_ONE_KEPT = boolean_array(np.ones(1, np.bool_))

OnDropped = Callable[[int], object]
Deleted = tuple[Region, KeyFile | None]
"""A deleted region, or the keys of a file, which the region contains."""


def open_deleted(
    schema: Schema,
    deleted: Iterable[Deleted],
    root: DataRoot,
    cache: KeyFileCache,
    are_in_order: bool = True,
) -> "DeletedRows":
    """Opens the key files of deletes. StateMovedOnError if one is gone."""
    regions, sources = [], list[KeySource]()
    for region, file in deleted:
        if file is None:
            regions.append(region)
        else:
            sources.append(cache.open(root, schema, file))
    return DeletedRows(schema, regions, sources, are_in_order)


class DeletedRows:
    """The deleted rows of files. Safe for threads.

    Unless the rows of each batch of the engine `are_in_order`, their order is checked.
    """

    def __init__(
        self,
        schema: Schema,
        regions: Iterable[Region],
        sources: Sequence[KeySource] = (),
        are_in_order: bool = True,
    ) -> None:
        self.schema = schema
        self._are_in_order = are_in_order
        self._sources = list(sources)
        keys, boxes = [], []
        for region in regions:
            key = key_of_region(schema, region)
            if key is None:
                boxes.append(region)
            else:
                keys.append(key)
        types = [arrow_type(field.type) for field in schema.row_keys]
        if keys:
            self._sources.append(listed_keys(keys, types))
        self._boxes = DeletedBoxes(schema, types, boxes) if boxes else None
        self._all_kept = _ONE_KEPT

    def keep(self, *columns: pa.Array, on_dropped: OnDropped = lambda _: None) -> pa.Array:
        """Returns whether each row is kept, from its row key columns.

        `on_dropped` receives the number of the others.
        """
        rows = len(columns[0])
        result = self._find(columns) if rows else None
        if result is None:
            if rows > len(self._all_kept):
                self._all_kept = boolean_array(np.ones(rows, np.bool_))
            return self._all_kept.slice(0, rows)
        on_dropped(int(result.sum()))
        return boolean_array(~result)

    def _find(self, columns: Sequence[pa.Array]) -> Mask | None:
        """Returns whether each row is deleted, None if none is."""
        rows = key_columns(columns, self._are_in_order)
        result = (
            None if self._boxes is None else self._boxes.find(rows.columns, rows.low, rows.high)
        )
        for source in self._sources:
            hits = rows.find(source)
            if hits is not None:
                result = hits if result is None else result | hits
        return result


class DeletedBoxes:
    """Deleted regions, searchable by key."""

    def __init__(
        self, schema: Schema, types: Sequence[pa.DataType], regions: Iterable[Region]
    ) -> None:
        self._schema = schema
        self._types = [key_column_type(kind) for kind in types]
        self._regions = sorted(set(regions), key=_smallest_key)
        self._starts: list[Any] = [_smallest_key(region) for region in self._regions]

    @cached_property
    def _ends(self) -> list[Any]:
        """The largest end of each region and those before it; regions may overlap."""
        return list(accumulate((self._end(region) for region in self._regions), max))

    def _end(self, region: Region) -> tuple[tuple[bool, Any], ...]:
        """Returns what every key of the region precedes; an open end has no value."""
        end: list[tuple[bool, Any]] = []
        for field, within in zip(self._schema.row_keys, region.ranges, strict=True):
            is_last = len(end) == len(region.ranges) - 1
            if is_last or not holds_one_value(field, within):
                break
            end.append((False, within.min))
        last = region.ranges[len(end)].max
        return (*end, (last is None, 0 if last is None else last))

    def find(self, columns: Sequence[pa.Array], low: Key, high: Key) -> Mask | None:
        """Returns whether each row is in a region. None if no region is near.

        `low` and `high` are the first and last key, or bounds of each field.
        """
        if not self._near(low, high):
            return None
        result = self._find([as_key_column(as_plain(each)) for each in columns])
        return result if result.any() else None

    def _find(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Returns whether each row is in a region."""
        rows = len(columns[0])
        if not rows:
            return np.zeros(0, np.bool_)
        bounds = [pc.min_max(values) for values in columns]
        low = tuple(each["min"].as_py() for each in bounds)
        high = tuple(each["max"].as_py() for each in bounds)
        near = self._near(low, high)
        if len(near) > _NEAR_MAX and rows > _HALVED_ROWS_MIN and low[:-1] != high[:-1]:
            # Rows in key order have narrower bounds in each half.
            half = rows // 2
            halves = [c.slice(0, half) for c in columns], [c.slice(half) for c in columns]
            return np.concatenate([self._find(each) for each in halves])
        near = [region for region in near if region.overlaps_bounds(low, high)]
        return self._search(columns, near, low, high)

    def _near(self, low: Key, high: Key) -> list[Region]:
        """Returns at least the regions that overlap the bounds."""
        stop = bisect_right(self._starts, high)
        start = bisect_right(self._ends, tuple((False, value) for value in low), 0, stop)
        return self._regions[start:stop]

    def _search(
        self, columns: Sequence[pa.Array], near: list[Region], low: Key, high: Key
    ) -> npt.NDArray[np.bool_]:
        varying = [i for i in range(len(columns)) if low[i] != high[i]]
        position = varying[0] if varying else 0
        result = np.zeros(len(columns[0]), np.bool_)
        searched: list[Region] = []
        boxes: list[Region] = []
        for region in near:
            others = (i for i in varying if i != position)
            is_one_field = all(region.ranges[i].contains_values(low[i], high[i]) for i in others)
            (searched if is_one_field else boxes).append(region)
        if len(searched) < _SEARCHED_MIN:
            boxes = near
        elif pa.types.is_integer(self._types[position]):
            ranges = [region.ranges[position] for region in searched]
            result = _in_ranges(columns[position].to_numpy(), ranges)
        else:
            field, points = self._schema.row_keys[position], []
            for region in searched:
                within = region.ranges[position]
                if holds_one_value(field, within):
                    points.append(within.min)
                else:
                    boxes.append(region)
            listed = pa.array(points, self._types[position])
            result = _as_numpy(pc.is_in(columns[position], value_set=listed))
        for region in boxes:
            result = result | _as_numpy(self._inside(columns, region))
        return result

    def _inside(self, columns: Sequence[pa.Array], region: Region) -> pa.Array:
        result: pa.Array | None = None
        for field, kind, values, within in zip(
            self._schema.row_keys, self._types, columns, region.ranges, strict=True
        ):
            for mask in _compare(values, within, kind, smallest_key_value(field)):
                result = mask if result is None else pc.and_(result, mask)
        return pa.array(np.ones(len(columns[0]), np.bool_)) if result is None else result


def _compare(
    values: pa.Array, within: Range, kind: pa.DataType, smallest: KeyValue
) -> Iterable[pa.Array]:
    if within.min != smallest:
        yield pc.greater_equal(values, pa.scalar(within.min, kind))
    if within.max is not None:
        yield pc.less(values, pa.scalar(within.max, kind))


def _smallest_key(region: Region) -> Key:
    return tuple(within.min for within in region.ranges)


def _as_numpy(mask: pa.Array) -> npt.NDArray[np.bool_]:
    values: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return values


def _in_ranges(values: npt.NDArray[Any], ranges: Sequence[Range]) -> npt.NDArray[np.bool_]:
    """Returns whether each number is in one of the ranges, by a search of their starts."""
    largest = int(np.iinfo(values.dtype).max)
    bounds: list[tuple[Any, Any]] = [(r.min, r.max) for r in ranges]
    ascending = sorted((low, largest if end is None else end - 1) for low, end in bounds)
    starts = np.array([start for start, _ in ascending], values.dtype)
    # A range may end after the next one: the largest end up to each decides.
    ends = np.array(list(accumulate((end for _, end in ascending), max)), values.dtype)
    before = np.searchsorted(starts, values, "right")
    result: npt.NDArray[np.bool_] = (before > 0) & (values <= ends[np.maximum(before, 1) - 1])
    return result
