"""Timestamps of a table in Athena's types.

Athena reads a timestamp as `DATEMILLI` (Arrow's date64): *milliseconds* since 1970 in UTC, without
the microseconds below them, rounded down. The SDK's types with a time zone are packed
(`milliseconds << 12 | zone`), so plain values of them are refused or read as other times. Inside
the connector, milliseconds are Arrow's timestamp without a zone, because Arrow expects whole days
of a date64, and rounds to them.

A *bound* is a value of a constraint. A bound on a timestamp is a hint, unless it is *plausible*:
plain milliseconds of a year in which people live. Packed milliseconds, microseconds and seconds of
nearly all such times are not. Athena applies its predicate to all returned rows.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.athena.constraints import AllOrNoneValueSet, EquatableValueSet, ValueSet
from sleeper.athena.encoding import DATE_MILLI, MILLISECONDS
from sleeper.datafiles.arrow import is_json

MICROSECONDS_PER_MILLISECOND = 1000
# 1800-01-01 and 2200-01-01.
_PLAUSIBLE_MIN_MS = -5_364_662_400_000
_PLAUSIBLE_MAX_MS = 7_258_118_400_000


def athena_type(kind: pa.DataType) -> pa.DataType | None:
    """Returns Athena's type of a column; None for lists and maps of timestamps, which it lacks."""
    if is_json(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return DATE_MILLI
    if pa.types.is_map(kind):
        parts = [kind.key_type, kind.item_type]
    else:
        parts = [kind.value_type] if pa.types.is_list(kind) else []
    return None if any(map(pa.types.is_timestamp, parts)) else kind


def to_milliseconds(column: pa.Array) -> pa.Array:
    """Returns a column of microseconds as `MILLISECONDS`, rounded down."""
    micros = column.view(pa.int64())
    # Arrow's division rounds towards zero.
    millis = pc.divide(micros, MICROSECONDS_PER_MILLISECOND)
    above = pc.greater(pc.multiply(millis, MICROSECONDS_PER_MILLISECOND), micros)
    return pc.subtract(millis, above.cast(pa.int64())).view(MILLISECONDS)


def to_date_milli(column: pa.Array) -> pa.Array:
    """Returns a column of microseconds as `DATE_MILLI`, rounded down."""
    return to_milliseconds(column).view(DATE_MILLI)


def has_plausible_bounds(values: ValueSet) -> bool:
    """Returns whether all bounds on a timestamp are plausible."""
    return all(
        bound.type == MILLISECONDS and _PLAUSIBLE_MIN_MS <= bound.value < _PLAUSIBLE_MAX_MS
        for bound in _bounds(values)
    )


def _bounds(values: ValueSet) -> Iterator[pa.Scalar]:
    match values:
        case AllOrNoneValueSet():
            return
        case EquatableValueSet(listed):
            yield from (value for value in listed if value.is_valid)
        case _:
            for each in values.ranges:
                markers = (each.low.value, each.high.value)
                yield from (value for value in markers if value is not None)
