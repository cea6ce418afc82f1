"""Parses columns of text, such as those of CSV and JSON lines."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import functions

from sleeper.datafiles.arrow import arrow_type, as_json
from sleeper.datafiles.casts import cast_or_find
from sleeper.datafiles.engine.session import map_column
from sleeper.datafiles.json_limits import NO_LIMITS, JsonLimits
from sleeper.datafiles.times import parse_times
from sleeper.datafiles.validity import UnfitError, check_documents
from sleeper.errors import InvalidRequestError, UnavailableError, is_transient
from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType, type_name
from sleeper.schema.model import Field as SchemaField

TEXT_IN_JSON = frozenset({PrimitiveType.BYTE_ARRAY, PrimitiveType.TIMESTAMP, PrimitiveType.DATE})
"""The types whose values are text in JSON."""

DECIMAL_DIGITS_MAX = 38
_LOWER_CASE = 0x20
_DECIMAL_TEXT = (
    rf"^[+-]?(\d{{1,{DECIMAL_DIGITS_MAX}}}(\.\d{{0,{DECIMAL_DIGITS_MAX}}})?"
    rf"|\.\d{{1,{DECIMAL_DIGITS_MAX}}})([eE][+-]?\d{{1,3}})?$"
)


def parse_column(
    column: pa.Array, field: SchemaField, limits: JsonLimits = NO_LIMITS
) -> tuple[pa.Array, dict[int, str]]:
    """Parses a column of text. Returns it with the reasons of rows that do not fit."""
    return cast_or_find(column, field, lambda part: parse_values(part, field.type, limits))


def parse_values(column: pa.Array, target: FieldType, limits: JsonLimits = NO_LIMITS) -> pa.Array:
    """Parses text. Raises UnfitError or an error of Arrow if a value does not fit."""
    match target:
        case PrimitiveType.BYTE_ARRAY:
            return _decode_base64(column)
        case PrimitiveType.TIMESTAMP:
            return _parse_timestamps(column)
        case PrimitiveType.BOOLEAN:
            return _parse_booleans(column)
        case PrimitiveType.DATE:
            return parse_times(column, arrow_type(target))
        case PrimitiveType.FLOAT | PrimitiveType.DOUBLE:
            return _parse_floats(column, target)
        case PrimitiveType.INT | PrimitiveType.LONG:
            return _parse_integers(column, target)
        case DecimalType():
            return _parse_decimals(column, target)
        case PrimitiveType.JSON:
            check_documents(column, limits)
            return as_json(column)
        case ListType() | MapType():
            raise InvalidRequestError("lists and maps cannot be read from plain text")
        case _:
            return column.cast(arrow_type(target))


def _parse_timestamps(column: pa.Array) -> pa.Array:
    zoned = pc.match_substring_regex(column, r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$")
    if pc.all(zoned, skip_nulls=True).as_py():
        return parse_times(column, pa.timestamp("us", tz="UTC"))
    if pc.any(zoned, skip_nulls=True).as_py():
        raise UnfitError("times with and without a zone are mixed")
    return pc.assume_timezone(parse_times(column, pa.timestamp("us")), "UTC")


def _parse_floats(column: pa.Array, target: FieldType) -> pa.Array:
    parsed = column.cast(arrow_type(target))
    infinite = pc.is_inf(parsed)
    if pc.any(infinite).as_py():
        is_named = pc.match_substring(column.filter(infinite), "inf", ignore_case=True)
        if not pc.all(is_named).as_py():
            raise UnfitError(f"too large for {type_name(target)}")
    return parsed


def _parse_booleans(column: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(column)
    if pc.all(pc.match_substring_regex(lowered, "^(true|false)$")).as_py() is False:
        raise UnfitError("expected true or false")
    return lowered.cast(pa.bool_())


def _parse_integers(column: pa.Array, target: FieldType) -> pa.Array:
    parsed = column.cast(arrow_type(target))
    # Arrow reads 0x10 as 16. Most columns have no such byte at all.
    if _has_x(column) and pc.any(pc.match_substring(column, "x", ignore_case=True)).as_py():
        raise UnfitError("expected an integer in decimal digits")
    return parsed


def _has_x(column: pa.Array) -> bool:
    content = column.buffers()[2] if pa.types.is_string(column.type) else None
    if content is None:
        return True
    letters = np.frombuffer(content, np.uint8) | _LOWER_CASE
    return bool((letters == ord("x")).any())


def _parse_decimals(column: pa.Array, target: DecimalType) -> pa.Array:
    # Arrow rescales without a check for overflow, so the intermediate type has twice the digits.
    if pc.all(pc.match_substring_regex(column, _DECIMAL_TEXT)).as_py() is False:
        raise UnfitError(f"expected a decimal of at most {DECIMAL_DIGITS_MAX} digits")
    magnitude = pc.max(pc.abs(column.cast(pa.float64()))).as_py()
    if magnitude is not None and magnitude > 10.0**DECIMAL_DIGITS_MAX:
        raise UnfitError(f"too large for {type_name(target)}")
    wide = column.cast(pa.decimal256(2 * DECIMAL_DIGITS_MAX, target.scale))
    return wide.cast(arrow_type(target))


def _decode_base64(column: pa.Array) -> pa.Array:
    try:
        return map_column(column, lambda text: functions.decode(text, "base64"), pa.binary())
    except Exception as error:  # DataFusion raises bare exceptions
        if is_transient(error):
            raise UnavailableError(f"cannot decode base64: {error}") from error
        raise UnfitError("not base64") from error
