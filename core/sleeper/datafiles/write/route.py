"""Routes rows in key order to their leaf partitions."""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.key_values import key_scalar, key_value
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import KeyValue, Schema, precedes

Slice = tuple[int, pa.RecordBatch]


class RangeRouter:
    """Cuts batches of a sorted stream at the starts of ranges of its first column.

    The ranges contain every value and do not overlap. Slices are (index in `ranges`, rows), in
    key order. A binary search finds each cut.
    """

    def __init__(self, ranges: Sequence[Range]) -> None:
        by_start = sorted((within.min, index) for index, within in enumerate(ranges))
        self._starts: list[KeyValue] = [start for start, _ in by_start]
        self._places = [index for _, index in by_start]

    def route(self, batch: pa.RecordBatch) -> Iterator[Slice]:
        """Yields the batch's rows by range."""
        if not batch.num_rows:
            return
        keys = batch.column(0)
        start = 0
        slot = bisect.bisect_right(self._starts, key_value(keys[0])) - 1
        while start < batch.num_rows:
            stop = batch.num_rows
            if slot + 1 < len(self._starts):
                following = self._starts[slot + 1]
                if not precedes(key_value(keys[stop - 1]), following):
                    stop = _first_not_before(keys, following, start)
            if stop > start:
                yield self._places[slot], batch.slice(start, stop - start)
            start, slot = stop, slot + 1


class LeafRouter:
    """Cuts batches of a sorted stream at leaf boundaries.

    The leaves contain every key and do not overlap. Slices are (index in `leaves`, rows), and the
    rows of a leaf stay in order. Leaves that are cut on a later field need masks.
    """

    def __init__(self, schema: Schema, leaves: Sequence[Partition]) -> None:
        self._schema = schema
        self._names = [f.name for f in schema.row_keys]
        self._leaves = leaves
        ranges = [leaf.region.ranges[0] for leaf in leaves]
        ascending = itertools.pairwise(sorted(ranges, key=lambda r: r.min))
        is_plain = not any(one.overlaps(after) for one, after in ascending)
        self._by_range = RangeRouter(ranges) if is_plain else None

    def route(self, batch: pa.RecordBatch) -> Iterator[Slice]:
        """Yields the batch's rows by leaf, in order of the leaves' first field."""
        if self._by_range is not None:
            yield from self._by_range.route(batch)
        elif batch.num_rows:
            yield from self._route_by_masks(batch)

    def _route_by_masks(self, batch: pa.RecordBatch) -> Iterator[Slice]:
        # Arrow has no filter kernels for views.
        fields = (arrow_schema(self._schema).field(name) for name in batch.schema.names)
        batch = batch.cast(pa.schema(fields))
        keys = batch.column(0)
        low, high = key_value(keys[0]), key_value(keys[-1])
        for index, leaf in enumerate(self._leaves):
            if leaf.region.ranges[0].overlaps_values(low, high):
                rows = rows_in_region(batch, self._names, leaf.region)
                if rows.num_rows:
                    yield index, rows


def rows_in_region(batch: pa.RecordBatch, names: Sequence[str], region: Region) -> pa.RecordBatch:
    """Returns the rows in the region. `names` are the row key columns."""
    return batch.filter(_mask(batch, names, region))


def _first_not_before(keys: pa.Array, value: KeyValue, start: int) -> int:
    low, high = start, len(keys)
    while low < high:
        middle = (low + high) // 2
        if precedes(key_value(keys[middle]), value):
            low = middle + 1
        else:
            high = middle
    return low


def _mask(batch: pa.RecordBatch, names: Sequence[str], region: Region) -> pa.Array:
    parts = [
        part
        for name, within in zip(names, region.ranges, strict=True)
        for part in _range_masks(batch.column(name), within)
    ]
    return reduce(pc.and_, parts)


def _range_masks(column: pa.Array, within: Range) -> list[pa.Array]:
    masks = [pc.greater_equal(column, key_scalar(within.min, column.type))]
    if within.max is not None:
        masks.append(pc.less(column, key_scalar(within.max, column.type)))
    return masks
