"""Which rows of a batch meet the constraints, column by column, in Arrow."""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.athena.value_sets import (
    AllOrNoneValueSet,
    EquatableValueSet,
    SortedRangeSet,
    ValueRange,
    ValueSet,
)
from sleeper.errors import InvalidRequestError


def rows_within(batch: pa.RecordBatch, constraints: Mapping[str, ValueSet]) -> pa.RecordBatch:
    """The rows that meet all constraints, which are by name of the batch's columns."""
    masks = [column_mask(name, batch.column(name), each) for name, each in constraints.items()]
    return batch.filter(reduce(pc.and_, masks)) if masks else batch


def column_mask(name: str, column: pa.Array, values: ValueSet) -> pa.Array:
    """For each value, null included, whether the set lets it through.

    Lists and maps are told apart from null and nothing more, as in Athena's own SDK. A NaN
    is greater than every number, again as there.
    """
    try:
        let_through = _mask(column, values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(
            f"the constraint of column {name!r} does not fit its type {column.type}: {error}"
        ) from error
    return pc.if_else(pc.is_null(column), values.null_allowed, let_through)


def _mask(column: pa.Array, values: ValueSet) -> Any:
    match values:
        case AllOrNoneValueSet(is_all):
            return is_all
        case _ if pa.types.is_nested(column.type):
            return True
        case EquatableValueSet(listed, is_white_list):
            among = _among(column, listed.cast(column.type))
            return among if is_white_list else pc.invert(among)
        case SortedRangeSet(ranges):
            return _in_ranges(column, ranges)


def _in_ranges(column: pa.Array, ranges: Iterable[ValueRange]) -> Any:
    singles = [each.single for each in ranges if each.single is not None]
    masks = [_in_range(column, each) for each in ranges if each.single is None]
    if singles:
        kind = column.type
        masks.append(_among(column, pa.array([s.cast(kind).as_py() for s in singles], kind)))
    return reduce(pc.or_, masks) if masks else False


def _among(column: pa.Array, values: pa.Array) -> Any:
    if pa.types.is_floating(column.type):
        # A lookup tells -0.0 from 0.0, a comparison does not.
        equal = [pc.equal(column, value) for value in values if value.is_valid]
        return reduce(pc.or_, equal) if equal else False
    return pc.is_in(column, value_set=values)


def _in_range(column: pa.Array, within: ValueRange) -> Any:
    mask = pc.is_valid(column)
    low, high = within.low.value, within.high.value
    if low is not None:
        above = pc.greater_equal if within.includes_low else pc.greater
        mask = pc.and_(mask, above(column, low.cast(column.type)))
    if high is not None:
        below = pc.less_equal if within.includes_high else pc.less
        return pc.and_(mask, below(column, high.cast(column.type)))
    return pc.or_(mask, pc.is_nan(column)) if pa.types.is_floating(column.type) else mask
