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

from sleeper.datafiles.key_runs import run_starts
from sleeper.processing.model import AggregationOp

_REDUCED_BY: dict[AggregationOp, np.ufunc] = {
    AggregationOp.MAP_SUM: np.add,
    AggregationOp.MAP_MIN: np.minimum,
    AggregationOp.MAP_MAX: np.maximum,
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
        return joined(lists, op, kind)

    of = pa.list_(pa.field("item", kind, True))
    return udf(join, [of], kind, "immutable", f"join_maps_{op.value}")


@cache
def _reduce_runs(
    op: AggregationOp, kind: pa.DataType, key_types: tuple[pa.DataType, ...]
) -> ScalarUDF:
    def reduce(maps: pa.Array, *keys: pa.Array) -> pa.Array:
        starts = run_starts(keys)
        if len(starts) == len(maps):
            return maps
        offsets = pa.array(np.append(starts, len(maps)), pa.int32())
        runs = pa.ListArray.from_arrays(offsets, maps)
        whole = joined(runs, op, kind)
        places = np.full(len(maps), -1)
        places[starts] = np.arange(len(starts))
        return whole.take(pa.array(places, mask=places < 0))

    return udf(reduce, [kind, *key_types], kind, "immutable", f"reduce_runs_{op.value}")


def joined(lists: pa.ListArray, op: AggregationOp, kind: pa.MapType) -> pa.MapArray:
    """Each list's maps as one map; null if it holds none but nulls, or is null itself."""
    rows = pc.list_parent_indices(lists)
    maps = pc.list_flatten(lists)
    if maps.null_count:
        is_there = maps.is_valid()
        rows, maps = rows.filter(is_there), maps.filter(is_there)
    rows = rows.to_numpy()
    offsets = maps.offsets.to_numpy() if len(maps) else np.zeros(1, np.int32)
    within = slice(int(offsets[0]), int(offsets[-1]))
    entry_rows, keys, values = _reduced(
        np.repeat(rows, np.diff(offsets)), maps.keys[within], maps.items[within], op
    )
    is_null = np.ones(len(lists) + 1, bool)
    # A null's offset says so; the last one ends the last map.
    is_null[[*np.unique(rows), len(lists)]] = False
    ends = np.searchsorted(entry_rows, np.arange(len(lists) + 1))
    return pa.MapArray.from_arrays(
        pa.array(ends.astype(np.int32), mask=is_null), keys, pa.array(values)
    ).cast(kind)


def _reduced(
    rows: np.ndarray, keys: pa.Array, values: pa.Array, op: AggregationOp
) -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """Entries by row and key, those that are equal in both made one; sums wrap."""
    numbers = values.to_numpy()
    if not len(rows):
        return rows, keys, numbers
    encoded = keys.dictionary_encode()
    in_order = pc.sort_indices(encoded.dictionary)
    count = len(in_order)
    rank = np.empty(count, np.int64)
    rank[in_order.to_numpy()] = np.arange(count)
    codes = rows.astype(np.int64) * count + rank[encoded.indices.to_numpy()]
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    numbers = _REDUCED_BY[op].reduceat(numbers[order], starts, dtype=numbers.dtype)
    codes = codes[starts]
    found = encoded.dictionary.take(in_order).take(pa.array(codes % count))
    return codes // count, found, numbers
