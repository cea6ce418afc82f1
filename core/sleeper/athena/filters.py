"""Constraints applied: to row key fields as key regions, to all other columns as row filters."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.athena.constraints import (
    AllOrNoneValueSet,
    EquatableValueSet,
    SortedRangeSet,
    ValueRange,
    ValueSet,
)
from sleeper.athena.times import MICROSECONDS_PER_MILLISECOND, to_milliseconds
from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.key_values import key_value
from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, Region
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import (
    PLAIN_KEY_TYPES,
    Field,
    KeyValue,
    PrimitiveType,
    Schema,
    next_key_value,
    precedes,
    smallest_key_value,
)

_REGIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class KeyRegions:
    """Disjoint regions that contain every row that meets the constraints.

    All rows of the regions meet the constraints of the `settled` fields.
    """

    regions: tuple[Region, ...]
    settled: frozenset[str]


def key_regions(schema: Schema, summary: Mapping[str, ValueSet], within: Region) -> KeyRegions:
    """Returns the regions of the constraints (by field name) inside another region."""
    settled = set()
    by_field = []
    for field, outer in zip(schema.row_keys, within.ranges, strict=True):
        ranges = _ranges(field, summary[field.name]) if field.name in summary else None
        if ranges is not None:
            settled.add(field.name)
        cut = (outer.intersect(each) for each in ranges) if ranges is not None else (outer,)
        by_field.append([each for each in cut if each is not None])
    for position in reversed(range(len(by_field))):
        if prod(map(len, by_field)) > _REGIONS_MAX:
            by_field[position] = [Range(by_field[position][0].min, by_field[position][-1].max)]
            settled.discard(schema.row_keys[position].name)
    regions = (Region(ranges) for ranges in itertools.product(*by_field))
    return KeyRegions(tuple(regions), frozenset(settled))


def _ranges(field: Field, values: ValueSet) -> list[Range] | None:
    """Returns the values as ascending ranges; None if they are no ranges of the field's type."""
    match values:
        case AllOrNoneValueSet(is_all):
            return None if is_all else []
        case EquatableValueSet(listed, is_white_list):
            points = _key_values(field, list(listed))
            if points is None or not is_white_list:
                return None
            return [Range(p, _next(field, p)) for p in sorted(set(points))]
        case _:
            ranges = [_range(field, each) for each in values.ranges]
            if any(each is None for each in ranges):
                return None
            return [within for each in ranges for within in each or ()]


def _range(field: Field, each: ValueRange) -> list[Range] | None:
    """Returns a half-open range, none if it is empty; None if it is of another type."""
    ends = _key_values(field, [m.value for m in (each.low, each.high) if m.value is not None])
    if ends is None:
        return None
    low: KeyValue | None = smallest_key_value(field)
    high: KeyValue | None = None
    if each.low.value is not None:
        low = ends[0] if each.includes_low else _next(field, ends[0])
    if each.high.value is not None:
        high = _next(field, ends[-1]) if each.includes_high else ends[-1]
    if low is None or (high is not None and not precedes(low, high)):
        return []
    return [Range(low, high)]


def _next(field: Field, value: KeyValue) -> KeyValue | None:
    """Returns the smallest value that is greater in Athena's type; None if there is none."""
    if field.type is PrimitiveType.TIMESTAMP and isinstance(value, int):
        return value + MICROSECONDS_PER_MILLISECOND
    return next_key_value(field, value)


def _key_values(field: Field, values: Sequence[pa.Scalar]) -> list[KeyValue] | None:
    """Returns the values; None if one is not of the field's type."""
    try:
        if field.type in PLAIN_KEY_TYPES:
            return [check_key_value(field, value.as_py()) for value in values]
        kind = arrow_type(field.type)
        matches = [key_value(value.cast(kind)) for value in values]
    except (InvalidRequestError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return None if None in matches else matches


def filter_rows(batch: pa.RecordBatch, constraints: Mapping[str, ValueSet]) -> pa.RecordBatch:
    """Returns the rows that meet all constraints, given by the batch's column names."""
    masks = [column_mask(name, batch.column(name), each) for name, each in constraints.items()]
    return batch.filter(reduce(pc.and_, masks)) if masks else batch


def column_mask(name: str, column: pa.Array, values: ValueSet) -> pa.Array:
    """Returns whether the set contains each value, null included.

    As in Athena's SDK, any list or map that is not null is contained, and a NaN is greater than
    every number. Timestamps are compared by their milliseconds, which Athena reads.
    """
    if pa.types.is_timestamp(column.type):
        column = to_milliseconds(column)
    try:
        contained = _mask(column, values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(
            f"the constraint of column {name!r} does not fit its type {column.type}: {error}"
        ) from error
    return pc.if_else(pc.is_null(column), values.null_allowed, contained)


def _mask(column: pa.Array, values: ValueSet) -> Any:
    match values:
        case AllOrNoneValueSet(is_all):
            return is_all
        case _ if pa.types.is_nested(column.type):
            return True
        case EquatableValueSet(listed, is_white_list):
            contained = _is_in(column, listed.cast(column.type))
            return contained if is_white_list else pc.invert(contained)
        case SortedRangeSet(ranges):
            return _is_in_ranges(column, ranges)


def _is_in_ranges(column: pa.Array, ranges: Iterable[ValueRange]) -> Any:
    singles = [each.single for each in ranges if each.single is not None]
    masks = [_is_in_range(column, each) for each in ranges if each.single is None]
    if singles:
        kind = column.type
        masks.append(_is_in(column, pa.array([s.cast(kind).as_py() for s in singles], kind)))
    return reduce(pc.or_, masks) if masks else False


def _is_in(column: pa.Array, values: pa.Array) -> Any:
    if pa.types.is_floating(column.type):
        # A lookup distinguishes -0.0 from 0.0, a comparison does not.
        equal = [pc.equal(column, value) for value in values if value.is_valid]
        return reduce(pc.or_, equal) if equal else False
    return pc.is_in(column, value_set=values)


def _is_in_range(column: pa.Array, within: ValueRange) -> Any:
    mask = pc.is_valid(column)
    low, high = within.low.value, within.high.value
    if low is not None:
        above = pc.greater_equal if within.includes_low else pc.greater
        mask = pc.and_(mask, above(column, low.cast(column.type)))
    if high is not None:
        below = pc.less_equal if within.includes_high else pc.less
        return pc.and_(mask, below(column, high.cast(column.type)))
    return pc.or_(mask, pc.is_nan(column)) if pa.types.is_floating(column.type) else mask
