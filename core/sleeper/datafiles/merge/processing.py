"""Filters and aggregations as part of a plan.

On sorted input the plan streams, because a group is complete at the next key. In addition to
DataFusion's functions, sums wrap in their field's type, extremes of floats do not depend on row
order, and maps are aggregated.

In DataFusion's grouped MIN and MAX of floats the result depends on the place of a NaN and on the
sign of the first zero (apache/datafusion#24432), and the maximum of only -inf is the smallest
finite number (apache/datafusion#13415). So DataFusion aggregates the finite numbers, plus zero,
and beside them the class of each number. NaN is greater than every other number, -0.0 is 0.0.
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
from sleeper.datafiles.engine.expression import column
from sleeper.datafiles.merge.json_filters import filter_documents
from sleeper.datafiles.merge.key_runs import run_starts
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.processing.model import AgeOff, Aggregation, AggregationOp
from sleeper.schema.model import Field, PrimitiveType, Schema

_MAP_FUNCTIONS: dict[AggregationOp, np.ufunc] = {
    AggregationOp.MAP_SUM: np.add,
    AggregationOp.MAP_MIN: np.minimum,
    AggregationOp.MAP_MAX: np.maximum,
}


def reduce_runs(
    op: AggregationOp, kind: pa.DataType, key_types: Sequence[pa.DataType]
) -> ScalarUDF:
    """Returns a function of a column of maps and the key columns.

    It merges the maps of adjacent rows with equal keys in a batch into the first row. The other
    rows get null.
    """
    return _reduce_runs(op, kind, tuple(key_types))


@cache
def join_maps(op: AggregationOp, kind: pa.DataType) -> ScalarUDF:
    """Returns a function that merges the maps of each list in a column."""

    def join(lists: pa.Array) -> pa.Array:
        return merge_maps(lists, op, kind)

    lists_of_maps = pa.list_(pa.field("item", kind, True))
    return udf(join, [lists_of_maps], kind, "immutable", f"join_maps_{op.value}")


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
        whole = merge_maps(runs, op, kind)
        positions = np.full(len(maps), -1)
        positions[starts] = np.arange(len(starts))
        return whole.take(pa.array(positions, mask=positions < 0))

    return udf(reduce, [kind, *key_types], kind, "immutable", f"reduce_runs_{op.value}")


def merge_maps(lists: pa.ListArray, op: AggregationOp, kind: pa.MapType) -> pa.MapArray:
    """Merges each list's maps into one map, null if the list is null or has only nulls."""
    rows = pc.list_parent_indices(lists)
    maps = pc.list_flatten(lists)
    if maps.null_count:
        is_valid = maps.is_valid()
        rows, maps = rows.filter(is_valid), maps.filter(is_valid)
    rows = rows.to_numpy()
    offsets = maps.offsets.to_numpy() if len(maps) else np.zeros(1, np.int32)
    within = slice(int(offsets[0]), int(offsets[-1]))
    entry_rows, keys, values = _reduce_entries(
        np.repeat(rows, np.diff(offsets)), maps.keys[within], maps.items[within], op
    )
    is_null = np.ones(len(lists) + 1, bool)
    # A null offset marks a null map. The last offset ends the last map.
    is_null[[*np.unique(rows), len(lists)]] = False
    ends = np.searchsorted(entry_rows, np.arange(len(lists) + 1))
    return pa.MapArray.from_arrays(
        pa.array(ends.astype(np.int32), mask=is_null), keys, pa.array(values)
    ).cast(kind)


def _reduce_entries(
    rows: np.ndarray, keys: pa.Array, values: pa.Array, op: AggregationOp
) -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """Sorts entries by row and key and reduces equal ones. Sums wrap."""
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
    numbers = _MAP_FUNCTIONS[op].reduceat(numbers[order], starts, dtype=numbers.dtype)
    codes = codes[starts]
    reduced_keys = encoded.dictionary.take(in_order).take(pa.array(codes % count))
    return codes // count, reduced_keys, numbers


_FLOATS = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)
_MINUS_INFINITE, _FINITE, _INFINITE, _NAN = range(4)
_SPECIAL = {_MINUS_INFINITE: -float("inf"), _INFINITE: float("inf"), _NAN: float("nan")}
_INT_VALUES = 2**32
_INT_HALF = 2**31
_TIME_MIN = -(2**63)


def apply_steps(frame: DataFrame, schema: Schema, steps: Sequence[ProcessingStep]) -> DataFrame:
    """Applies the filters and aggregations of steps to a frame, without their iterators.

    The frame has every field of the schema, of the engine's types, and all rows of each of its
    keys. The order by key is kept: the plan of a later sort by key has no sort. Only the first
    aggregation has an effect, because keys are unique after it.
    """
    is_aggregated = False
    for step in steps:
        for age_off in step.processing.age_offs:
            predicate = _age_predicate(schema.field(age_off.field), age_off, step.now_ms)
            frame = frame if predicate is None else frame.filter(predicate)
        frame = filter_documents(frame, schema, step.processing.json_filters)
        if step.processing.aggregations and not is_aggregated:
            is_aggregated = True
            frame = _aggregate(frame, schema, step.processing.aggregations)
    return frame


def _age_predicate(field: Field, age_off: AgeOff, now_ms: int) -> Expr | None:
    """Returns the predicate of an age-off filter, None if no time of the type is that old."""
    oldest = now_ms - age_off.age_ms
    kind = arrow_type(field.type)
    if field.type is PrimitiveType.TIMESTAMP:
        oldest *= 1000
    if oldest < _TIME_MIN:
        return None
    time = column(field.name)
    is_young = time > lit(pa.scalar(oldest, pa.int64()).cast(kind))
    return is_young | time.is_null() if field.nullable else is_young


def _aggregate(frame: DataFrame, schema: Schema, aggregations: Sequence[Aggregation]) -> DataFrame:
    keys = [column(field.name) for field in schema.keys]
    ops = {a.field: a.op for a in aggregations}
    # No field has a name of this length.
    class_prefix = "?" * (max(len(field.name) for field in schema.fields) + 1)
    values = [
        _Aggregated(field, arrow_type(field.type), ops[field.name], class_prefix + field.name)
        for field in schema.values
    ]
    maps = [each for each in values if each.op.is_of_maps]
    if maps:
        # Merged per batch first, so that a large group is collected as few maps.
        key_types = [frame.schema().field(field.name).type for field in schema.keys]
        rest = [*schema.keys, *(each.field for each in values if each not in maps)]
        frame = frame.select(
            *(column(field.name) for field in rest),
            *(
                reduce_runs(each.op, each.kind, key_types)(each.value, *keys).alias(each.field.name)
                for each in maps
            ),
        )
    whole = frame.aggregate(keys, [part for each in values for part in each.parts()])
    return whole.select(*keys, *(each.whole().alias(each.field.name) for each in values))


@dataclass(frozen=True, slots=True)
class _Aggregated:
    """A value field that is aggregated. `class_name` is the column of the class of a float."""

    field: Field
    kind: pa.DataType
    op: AggregationOp
    class_name: str

    @property
    def value(self) -> Expr:
        """The field's column, before and after the aggregation."""
        return column(self.field.name)

    def parts(self) -> list[Expr]:
        """Returns the aggregations of the field in the plan."""
        value, name = self.value, self.field.name
        if self.op.is_of_maps:
            return [f.array_agg(value, filter=value.is_not_null()).alias(name)]
        if self.op is AggregationOp.SUM:
            return [f.sum(value).alias(name)]
        extreme = f.min if self.op is AggregationOp.MIN else f.max
        if self.field.type not in _FLOATS:
            return [extreme(value).alias(name)]
        number_class = self._number_class()
        is_finite = (number_class == lit(_FINITE)) & value.is_not_null()
        zero = lit(pa.scalar(0.0, self.kind))
        return [
            extreme(value + zero, filter=is_finite).alias(name),
            extreme(number_class, filter=value.is_not_null()).alias(self.class_name),
        ]

    def whole(self) -> Expr:
        """Returns the field's value from the results of `parts`."""
        part = self.value
        if self.op.is_of_maps:
            return join_maps(self.op, self.kind)(part)
        if self.op is AggregationOp.SUM and self.field.type is PrimitiveType.INT:
            # Sums of int32 are int64. The result is the lowest 32 bits with their sign.
            low = (part % lit(_INT_VALUES) + lit(_INT_VALUES + _INT_HALF)) % lit(_INT_VALUES)
            return (low - lit(_INT_HALF)).cast(pa.int32())
        if self.op is AggregationOp.SUM or self.field.type not in _FLOATS:
            return part
        extreme = f.case(column(self.class_name))
        for position, special in _SPECIAL.items():
            extreme = extreme.when(lit(position), lit(pa.scalar(special, self.kind)))
        return extreme.otherwise(part)

    def _number_class(self) -> Expr:
        """Returns the class of the float. Classes are numbered in the order of their values."""
        number_class = f.when(f.isnan(self.value), lit(_NAN))
        for position in (_MINUS_INFINITE, _INFINITE):
            special = lit(pa.scalar(_SPECIAL[position], self.kind))
            number_class = number_class.when(self.value == special, lit(position))
        return number_class.otherwise(lit(_FINITE))
