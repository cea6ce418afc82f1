"""Keys, ranges and regions as JSON. Regions: docs/formats.md, "Regions and ranges"."""

import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import JsonCodec, Member, MismatchError, camel_case
from sleeper.lenient_json import LenientFlag, to_flag, to_key_text, to_whole_number
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.key_values import check_key_value, plain_key_value
from sleeper.schema.model import (
    INT_RANGES,
    PLAIN_KEY_TYPES,
    Field,
    KeyValue,
    PrimitiveType,
    Schema,
    next_key_value,
    precedes,
    smallest_key_value,
)

ENCODED_MEMBER = "stringsBase64Encoded"
"""The member of a region that tells whether its strings are base64."""


class EmptyRangeError(InvalidRequestError):
    """A range is empty: its ends are equal or in the wrong order."""


def region_from_json(schema: Schema, raw: Any) -> Region:
    """Parses the region of a request into half-open ranges. Omitted fields have open ranges.

    InvalidRequestError for a field that is no row key, a value that does not fit its field, an
    unknown member of a range, or an empty range.
    """
    return Region(tuple(_range(*each) for each in _raw_ranges(schema, raw)))


def region_or_none_from_json(schema: Schema, raw: Any) -> Region | None:
    """Parses a region. Returns None for a region whose ranges include an empty range."""
    ranges: list[Range] = []
    for each in _raw_ranges(schema, raw):
        # Errors in the other ranges are still reported.
        with contextlib.suppress(EmptyRangeError):
            ranges.append(_range(*each))
    return Region(tuple(ranges)) if len(ranges) == len(schema.row_keys) else None


def _raw_ranges(schema: Schema, raw: Any) -> Iterator[tuple[Field, Any, bool]]:
    """Yields each row key field, its range as JSON, and whether strings are base64."""
    if not isinstance(raw, dict):
        raise InvalidRequestError(f"region must be a JSON object, not {raw!r}")
    try:
        encoded = to_flag(raw.get(ENCODED_MEMBER, True))
    except MismatchError as error:
        raise InvalidRequestError(f'region: "{ENCODED_MEMBER}"{error.problem}') from None
    names = [f.name for f in schema.row_keys]
    for name in raw:
        if name != ENCODED_MEMBER and name not in names:
            raise InvalidRequestError(
                f"region has {name!r}, which is not a row key field (expected {', '.join(names)})"
            )
    for field in schema.row_keys:
        yield field, raw.get(field.name), encoded


def region_to_json(schema: Schema, region: Region) -> dict[str, Any]:
    """Returns the region as JSON, with plain strings and base64 bytes."""
    raw: dict[str, Any] = {
        f.name: {
            "min": None if (low := find_lower_end(f, r)) is None else key_value_to_json(f, low),
            "minInclusive": True,
            "max": None if r.max is None else key_value_to_json(f, r.max),
            "maxInclusive": False,
        }
        for f, r in zip(schema.row_keys, region.ranges, strict=True)
    }
    raw[ENCODED_MEMBER] = False
    return raw


def find_lower_end(field: Field, within: Range) -> KeyValue | None:
    """Returns the lower end of a range; None if it is open, of types that gchq/sleeper lacks.

    The least times and dates are no values that Python and Spark can show.
    """
    is_open = within.min == smallest_key_value(field) and field.type not in PLAIN_KEY_TYPES
    return None if is_open else within.min


def make_range(
    field: Field,
    minimum: KeyValue | None,
    maximum: KeyValue | None,
    min_inclusive: bool = True,
    max_inclusive: bool = False,
) -> Range:
    """Returns a half-open range from the ends of a request; None is open on that side."""
    low: KeyValue | None = smallest_key_value(field) if minimum is None else minimum
    if minimum is not None and not min_inclusive:
        low = next_key_value(field, minimum)
    high = maximum
    if maximum is not None and max_inclusive:
        high = next_key_value(field, maximum)
    if low is None or (high is not None and not precedes(low, high)):
        ends = (None if v is None else plain_key_value(field, v) for v in (minimum, maximum))
        shown_low, shown_high = map(repr, ends)
        raise EmptyRangeError(
            f"range of field {field.name!r} is empty: min {shown_low} "
            f"({'in' if min_inclusive else 'ex'}clusive), max {shown_high} "
            f"({'in' if max_inclusive else 'ex'}clusive)"
        )
    return Range(low, high)


def first_field_region(
    schema: Schema, minimum: KeyValue | None, maximum: KeyValue | None
) -> Region:
    """Returns the keys whose first field is in [minimum, maximum). None is an open end."""
    within = make_range(schema.row_keys[0], minimum, maximum)
    return Region((within, *whole_region(schema).ranges[1:]))


def key_value_to_json(field: Field, value: KeyValue) -> int | str | bool:
    """Returns the value of a key field as `key_value_from_json` reads it, with plain strings."""
    plain = plain_key_value(field, value)
    return base64.b64encode(plain).decode() if isinstance(plain, bytes) else plain


def key_value_from_json(field: Field, raw: Any, strings_encoded: bool = False) -> KeyValue:
    """Returns the value of a key field from JSON; InvalidRequestError if it does not fit."""
    is_bytes = field.type is PrimitiveType.BYTE_ARRAY
    is_encoded_text = strings_encoded and field.type is PrimitiveType.STRING
    if isinstance(raw, str) and (is_bytes or is_encoded_text):
        try:
            padded = raw + "=" * (-len(raw) % 4)
            decoded = base64.b64decode(padded, validate=True)
            return decoded if is_bytes else decoded.decode("utf-8")
        except ValueError as error:
            raise InvalidRequestError(
                f"field {field.name!r}: {raw!r} is not base64 of its type: {error}"
            ) from error
    return check_key_value(field, raw)


@dataclass(frozen=True, slots=True)
class _RawRange:
    min: Annotated[Any, Member(optional=True)] = None
    min_inclusive: LenientFlag = True
    max: Annotated[Any, Member(optional=True)] = None
    max_inclusive: LenientFlag = False


_RANGES = JsonCodec(_RawRange, camel_case, ("min", "minInclusive", "max", "maxInclusive"))


def _range(field: Field, raw: Any, encoded: bool) -> Range:
    ends = _RANGES.from_json({} if raw is None else raw, f"range of field {field.name!r}")
    low, high = _end(field, ends.min, encoded), _end(field, ends.max, encoded)
    return make_range(field, low, high, ends.min_inclusive, ends.max_inclusive)


_WHOLE_NUMBERS = {*INT_RANGES, PrimitiveType.TIMESTAMP}


def _end(field: Field, raw: Any, encoded: bool) -> KeyValue | None:
    if raw is None:
        return None
    if field.type in _WHOLE_NUMBERS:
        # Other values are errors of the field.
        with contextlib.suppress(MismatchError):
            raw = to_whole_number(raw)
    if field.type is PrimitiveType.STRING:
        raw = to_key_text(raw)
    return key_value_from_json(field, raw, encoded)
