"""The filter that leaves out deleted rows, above the scan of a file.

A batch of a file is sorted by key, so its smallest and largest value of the first row key field
select the few deleted regions that it can overlap. Only these are compared, by whole columns. So
the cost of a batch does not grow with the number of deletes elsewhere.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import udf
from datafusion.expr import Expr

from sleeper.datafiles.arrow import arrow_schema, as_plain, view_schema
from sleeper.datafiles.engine.expression import column
from sleeper.partitions.region import Range, Region, holds_one_value
from sleeper.schema.model import KeyValue, Schema, precedes, smallest_key_value

_KEYS_LISTED_MIN = 4


def keep_predicate(schema: Schema, deleted: Sequence[Region]) -> Expr:
    """Returns the predicate for rows outside of the deleted regions."""
    rows = DeletedRegions(schema, deleted)
    names = [field.name for field in schema.row_keys]
    types = [view_schema(schema).field(name).type for name in names]
    keeps = udf(rows.keep, types, pa.bool_(), "immutable", "keep_undeleted")
    return keeps(*(column(name) for name in names))


class DeletedRegions:
    """Regions of deleted rows, searchable by the first row key field."""

    def __init__(self, schema: Schema, regions: Iterable[Region]) -> None:
        self._schema = schema
        self._types = [arrow_schema(schema).field(f.name).type for f in schema.row_keys]
        self._regions = sorted(set(regions), key=lambda region: region.ranges[0].min)
        self._starts: list[Any] = [region.ranges[0].min for region in self._regions]

    @cached_property
    def _ends(self) -> list[KeyValue | None]:
        """The largest end of each region and those before it; regions may overlap."""
        ends = (region.ranges[0].max for region in self._regions)
        return list(accumulate(ends, _later_end))

    def keep(self, *keys: pa.Array) -> pa.Array:
        """Returns whether each row is outside of all regions, from its row key columns."""
        rows = len(keys[0])
        if not rows:
            return pa.array([], pa.bool_())
        columns = [as_plain(key) for key in keys]
        near = self._near(columns[0])
        if not near:
            return pa.array(np.ones(rows, np.bool_))
        return pc.invert(self._deleted(columns, near))

    def _near(self, first: pa.Array) -> list[Region]:
        """Returns the regions that overlap the values of the first field."""
        bounds = pc.min_max(first)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        stop = bisect_right(self._starts, high)
        start = stop
        while start and _reaches(self._ends[start - 1], low):
            start -= 1
        return [r for r in self._regions[start:stop] if r.ranges[0].overlaps_values(low, high)]

    def _deleted(self, columns: Sequence[pa.Array], near: list[Region]) -> pa.Array:
        field = self._schema.row_keys[0]
        if len(columns) == 1 and len(near) >= _KEYS_LISTED_MIN:
            listed = [r for r in near if holds_one_value(field, r.ranges[0])]
            near = [r for r in near if not holds_one_value(field, r.ranges[0])]
            keys = pa.array([r.ranges[0].min for r in listed], self._types[0])
            masks = [pc.is_in(columns[0], value_set=keys)]
        else:
            masks = []
        masks += [self._inside(columns, region) for region in near]
        found = masks[0]
        for mask in masks[1:]:
            found = pc.or_(found, mask)
        return found

    def _inside(self, columns: Sequence[pa.Array], region: Region) -> pa.Array:
        found: pa.Array | None = None
        for field, kind, values, within in zip(
            self._schema.row_keys, self._types, columns, region.ranges, strict=True
        ):
            for mask in _compare(values, within, kind, smallest_key_value(field)):
                found = mask if found is None else pc.and_(found, mask)
        return pa.array(np.ones(len(columns[0]), np.bool_)) if found is None else found


def _compare(
    values: pa.Array, within: Range, kind: pa.DataType, smallest: KeyValue
) -> Iterable[pa.Array]:
    if within.min != smallest:
        yield pc.greater_equal(values, pa.scalar(within.min, kind))
    if within.max is not None:
        yield pc.less(values, pa.scalar(within.max, kind))


def _later_end(one: KeyValue | None, other: KeyValue | None) -> KeyValue | None:
    if one is None or other is None:
        return None
    return other if precedes(one, other) else one


def _reaches(end: KeyValue | None, low: KeyValue) -> bool:
    return end is None or precedes(low, end)
