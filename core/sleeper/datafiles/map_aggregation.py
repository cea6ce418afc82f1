"""Maps of many rows become one, key by key: functions for the engine, on whole columns.

The result of a group has its keys in order, so that it does not depend on how the group
was put together.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import udf
from datafusion.user_defined import ScalarUDF

from sleeper.processing.model import AggregationOp

_FUNCTIONS = {
    AggregationOp.MAP_SUM: "sum",
    AggregationOp.MAP_MIN: "min",
    AggregationOp.MAP_MAX: "max",
}


def reduce_runs(
    op: AggregationOp, kind: pa.DataType, key_types: Sequence[pa.DataType]
) -> ScalarUDF:
    """A function of a column of maps and the key columns.

    Of neighbours with equal keys in a batch, the first gets all their maps as one, the
    others none.
    """
    return _reduce_runs(op, kind, tuple(key_types))


@cache
def join_maps(op: AggregationOp, kind: pa.DataType) -> ScalarUDF:
    """A function of a column of lists of maps: the maps of each list as one."""

    def join(lists: pa.Array) -> pa.Array:
        return joined(lists, _FUNCTIONS[op], kind)

    of = pa.list_(pa.field("item", kind, True))
    return udf(join, [of], kind, "immutable", f"join_maps_{op.value}")


@cache
def _reduce_runs(
    op: AggregationOp, kind: pa.DataType, key_types: tuple[pa.DataType, ...]
) -> ScalarUDF:
    def reduce(maps: pa.Array, *keys: pa.Array) -> pa.Array:
        starts = _run_starts(keys)
        if len(starts) == len(maps):
            return maps
        offsets = pa.array(np.append(starts, len(maps)), pa.int32())
        runs = pa.ListArray.from_arrays(offsets, maps)
        whole = joined(runs, _FUNCTIONS[op], kind)
        places = np.full(len(maps), -1)
        places[starts] = np.arange(len(starts))
        return whole.take(pa.array(places, mask=places < 0))

    return udf(reduce, [kind, *key_types], kind, "immutable", f"reduce_runs_{op.value}")


def joined(lists: pa.ListArray, function: str, kind: pa.MapType) -> pa.MapArray:
    """Each list's maps as one map; null if it holds none but nulls, or is null itself."""
    rows = pc.list_parent_indices(lists)
    maps = pc.list_flatten(lists)
    if maps.null_count:
        is_there = maps.is_valid()
        rows, maps = rows.filter(is_there), maps.filter(is_there)
    start, stop = (maps.offsets[0].as_py(), maps.offsets[-1].as_py()) if len(maps) else (0, 0)
    lengths = np.diff(maps.offsets.to_numpy()) if len(maps) else np.array([], np.int64)
    entries = pa.table(
        {
            "row": pa.array(np.repeat(rows.to_numpy(), lengths), pa.int64()),
            "key": maps.keys.slice(start, stop - start),
            "value": maps.items.slice(start, stop - start),
        }
    )
    groups = entries.group_by(["row", "key"], use_threads=False).aggregate([("value", function)])
    groups = groups.sort_by([("row", "ascending"), ("key", "ascending")])
    ends = np.searchsorted(groups["row"].to_numpy(), np.arange(len(lists) + 1))
    is_null = np.ones(len(lists), bool)
    is_null[rows.to_numpy()] = False
    # A null's offset says so; the last one ends the last map.
    offsets = pa.array(ends.astype(np.int32), mask=np.append(is_null, False))
    # Sums of 32 bits come as 64: an unchecked cast keeps the lowest, which is to wrap.
    values = groups[f"value_{function}"].cast(kind.item_type, safe=False)
    whole = pa.MapArray.from_arrays(offsets, _one(groups["key"]), _one(values))
    return whole.cast(kind)


def _run_starts(keys: Sequence[pa.Array]) -> np.ndarray:
    """Where a row differs from the one before."""
    differs = np.zeros(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        plain = key.cast(_PLAIN.get(key.type, key.type))
        differs |= pc.not_equal(plain.slice(1), plain.slice(0, len(key) - 1)).to_numpy(
            zero_copy_only=False
        )
    return np.append([0], np.flatnonzero(differs) + 1) if len(keys[0]) else np.array([], int)


_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
