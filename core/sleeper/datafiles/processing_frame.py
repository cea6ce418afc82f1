"""A processing as part of an engine's plan: rows of a frame filtered, then aggregated.

On sorted input the plan streams: groups are sorted as the input is, so each is complete as
soon as the next key comes. What the engine's own functions do not promise is made good
here: a sum wraps in its field's type, and least and greatest of floats do not depend on
the order of rows (NaN is greater than all else, -0.0 is 0.0).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from datafusion import DataFrame, lit
from datafusion import functions as f
from datafusion.expr import Expr

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.bound_iterator import BoundIterator
from sleeper.datafiles.map_aggregation import join_maps, reduce_runs
from sleeper.datafiles.predicate import column
from sleeper.processing.model import AgeOff, Aggregation, AggregationOp, Processing
from sleeper.schema.model import Field, MapType, PrimitiveType, Schema

_FLOATS = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)
_INT_VALUES = 2**32
_INT_HALF = 2**31
_TIME_MIN = -(2**63)
_MINUS_INFINITE, _FINITE, _INFINITE, _NAN = range(4)
_SPECIAL = {_MINUS_INFINITE: -float("inf"), _INFINITE: float("inf"), _NAN: float("nan")}


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
    least_or_greatest = f.min if op is AggregationOp.MIN else f.max
    if field.type not in _FLOATS:
        return [least_or_greatest(value).alias(name)]
    # The engine's own depends on whether a NaN comes first, and its greatest of nothing but
    # -inf is not -inf. So it sees finite numbers only, and beside them which class there is.
    number_class = _number_class(value, arrow_type(field.type))
    is_finite = (number_class == lit(_FINITE)) & value.is_not_null()
    zero = lit(pa.scalar(0.0, arrow_type(field.type)))
    return [
        least_or_greatest(value + zero, filter=is_finite).alias(name),
        least_or_greatest(number_class, filter=value.is_not_null()).alias(class_name),
    ]


def _number_class(value: Expr, kind: pa.DataType) -> Expr:
    """Which class the float is of; classes are in the order of their numbers."""
    number_class = f.when(f.isnan(value), lit(_NAN))
    for place in (_MINUS_INFINITE, _INFINITE):
        is_it = value == lit(pa.scalar(_SPECIAL[place], kind))
        number_class = number_class.when(is_it, lit(place))
    return number_class.otherwise(lit(_FINITE))


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
        whole = f.case(column(class_name))
        for place, special in _SPECIAL.items():
            whole = whole.when(lit(place), lit(pa.scalar(special, arrow_type(field.type))))
        return whole.otherwise(part)
    return part
