"""A processing as part of an engine's plan: rows of a frame filtered, then aggregated.

On sorted input the plan streams: groups are sorted as the input is, so each is complete as
soon as the next key comes. What the engine's own functions do not promise is made good
here: a sum wraps in its field's type, and least and greatest of floats do not depend on
the order of rows (NaN is greater than all else, -0.0 is 0.0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, lit, udf
from datafusion import functions as f
from datafusion.expr import Expr
from datafusion.user_defined import ScalarUDF

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.engine.float_extremes import extreme_parts, extreme_value
from sleeper.datafiles.engine.predicate import column
from sleeper.datafiles.merge.bound_iterator import BoundIterator
from sleeper.datafiles.merge.key_runs import run_starts
from sleeper.processing.model import AgeOff, Aggregation, AggregationOp, Processing
from sleeper.schema.model import Field, MapType, PrimitiveType, Schema

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


_FLOATS = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)
_INT_VALUES = 2**32
_INT_HALF = 2**31
_TIME_MIN = -(2**63)


@dataclass(frozen=True, slots=True)
class ProcessingStep:
    """A processing, what time it is for its filters, and its iterator, looked up.

    The iterator is for whoever runs the plan: it comes after the step's aggregations.
    """

    processing: Processing
    now_ms: int
    iterator: BoundIterator | None = None


def processed(frame: DataFrame, schema: Schema, steps: Sequence[ProcessingStep]) -> DataFrame:
    """The frame's rows after each step, with the same columns. Iterators are not run.

    The frame has every field of the schema, of the engine's types, and all rows of whatever
    keys it has. Rows that were sorted by key are so again once they are sorted by key: the
    engine knows, and does not sort. Of steps that aggregate only the first does: after it, no
    two rows have equal keys.
    """
    is_aggregated = False
    for step in steps:
        for age_off in step.processing.filters:
            predicate = _is_young(schema.field(age_off.field), age_off, step.now_ms)
            frame = frame if predicate is None else frame.filter(predicate)
        if step.processing.aggregations and not is_aggregated:
            is_aggregated = True
            frame = _aggregated(frame, schema, step.processing.aggregations)
    return frame


def _is_young(field: Field, age_off: AgeOff, now_ms: int) -> Expr | None:
    """None if no time is so old."""
    oldest = now_ms - age_off.age_ms
    kind = arrow_type(field.type)
    if field.type is PrimitiveType.TIMESTAMP:
        oldest *= 1000
    if oldest < _TIME_MIN:
        return None
    time = column(field.name)
    is_young = time > lit(pa.scalar(oldest, pa.int64()).cast(kind))
    return is_young | time.is_null() if field.nullable else is_young


def _aggregated(frame: DataFrame, schema: Schema, aggregations: Sequence[Aggregation]) -> DataFrame:
    keys = [column(field.name) for field in schema.keys]
    by_field = {a.field: a.op for a in aggregations}
    maps = [field for field in schema.values if by_field[field.name].is_of_maps]
    if maps:
        # A group of very many rows is gathered as a few maps for each of its batches.
        kinds = [frame.schema().field(field.name).type for field in schema.keys]
        reduced = [
            reduce_runs(by_field[m.name], arrow_type(m.type), kinds)(column(m.name), *keys)
            for m in maps
        ]
        frame = frame.select(
            *(column(field.name) for field in schema.fields if field not in maps),
            *(r.alias(m.name) for r, m in zip(reduced, maps, strict=True)),
        )
    parts: list[Expr] = []
    for field in schema.values:
        parts += _parts(field, by_field[field.name], _class_name(schema, field))
    whole = frame.aggregate(keys, parts)
    return whole.select(
        *keys,
        *(
            _whole(field, by_field[field.name], _class_name(schema, field)).alias(field.name)
            for field in schema.values
        ),
    )


def _class_name(schema: Schema, field: Field) -> str:
    """What no field is called: what kind of float a field's value is."""
    return "?" * (max(len(f.name) for f in schema.fields) + 1) + field.name


def _parts(field: Field, op: AggregationOp, class_name: str) -> list[Expr]:
    """What the engine is to gather of the field."""
    value, name = column(field.name), field.name
    if op.is_of_maps:
        return [f.array_agg(value, filter=value.is_not_null()).alias(name)]
    if op is AggregationOp.SUM:
        return [f.sum(value).alias(name)]
    if field.type in _FLOATS:
        is_min = op is AggregationOp.MIN
        return extreme_parts(value, arrow_type(field.type), is_min, name, class_name)
    extreme = f.min if op is AggregationOp.MIN else f.max
    return [extreme(value).alias(name)]


def _whole(field: Field, op: AggregationOp, class_name: str) -> Expr:
    """The field's value from its parts."""
    part = column(field.name)
    if isinstance(field.type, MapType):
        return join_maps(op, arrow_type(field.type))(part)
    if op is AggregationOp.SUM and field.type is PrimitiveType.INT:
        # Sums of int32 are int64, which wraps: its lowest 32 bits, with their sign.
        low = (part % lit(_INT_VALUES) + lit(_INT_VALUES + _INT_HALF)) % lit(_INT_VALUES)
        return (low - lit(_INT_HALF)).cast(pa.int32())
    if field.type in _FLOATS:
        return extreme_value(part, column(class_name), arrow_type(field.type))
    return part
