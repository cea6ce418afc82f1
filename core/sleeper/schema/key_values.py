"""Values of key fields: of users, and in the form that sorts (`KeyValue`).

| type | values of users | `KeyValue` |
|---|---|---|
| IntType, LongType | int | the number |
| StringType, ByteArrayType | str, bytes | the text, the bytes |
| TimestampType | datetime, ISO 8601 text, or int of microseconds | microseconds since 1970, UTC |
| DateType | date, text such as 2013-01-31, or int of days | days since 1970 |
| BooleanType | bool, or text: true or false | 1 or 0 |
| DecimalType | Decimal, int, float, or text such as 12.50 | units of the last decimal place |

Times without a time zone are in UTC.
"""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from sleeper.errors import InvalidRequestError
from sleeper.lenient_json import is_unicode
from sleeper.schema.model import (
    INT_RANGES,
    DecimalType,
    Field,
    KeyValue,
    PrimitiveType,
    key_number_range,
    type_name,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]+))? ?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_FRACTION_DIGITS = 6


def check_key_value(field: Field, value: object) -> KeyValue:
    """Returns a user's value in the form that sorts.

    InvalidRequestError if it does not fit the key field, or only with a loss.
    """
    kind = field.type
    if kind in INT_RANGES and isinstance(value, int) and not isinstance(value, bool):
        return _check_number(field, value, value)
    if kind is PrimitiveType.STRING and isinstance(value, str):
        if not is_unicode(value):
            raise InvalidRequestError(f"field {field.name!r}: {value!r} is not Unicode text")
        return value
    if kind is PrimitiveType.BYTE_ARRAY and isinstance(value, bytes):
        return value
    try:
        number = _number(field, value)
    except (ValueError, OverflowError, InvalidOperation) as error:
        raise InvalidRequestError(
            f"field {field.name!r}: {value!r} does not fit {type_name(kind)} ({error})"
        ) from error
    if number is None:
        raise InvalidRequestError(
            f"field {field.name!r} is {type_name(kind)}: {type(value).__name__} {value!r} does "
            f"not fit{_EXPECTED.get(_name(field), '')}"
        )
    return _check_number(field, number, value)


_EXPECTED = {
    "TimestampType": " (expected a time such as 2013-01-31T05:15:00Z, or microseconds since 1970)",
    "DateType": " (expected a date such as 2013-01-31)",
    "BooleanType": " (expected true or false)",
    "DecimalType": " (expected a number such as 12.50)",
}


def _name(field: Field) -> str:
    kind = field.type
    return kind.value if isinstance(kind, PrimitiveType) else type(kind).__name__


def check_sorted_value(field: Field, value: KeyValue) -> None:
    """Raises InvalidRequestError if a value in the form that sorts is none of the key field."""
    numbers = key_number_range(field.type)
    if numbers is None:
        check_key_value(field, value)
    elif not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequestError(
            f"field {field.name!r} is {type_name(field.type)}: {type(value).__name__} {value!r} "
            "does not fit (expected a value that `check_key_value` returned)"
        )
    else:
        _check_number(field, value, value)


def plain_key_value(field: Field, value: KeyValue) -> int | str | bytes | bool:
    """Returns a value as text or JSON have it: times and decimals as text.

    Times and dates of years that are not 1 to 9999 are numbers.
    """
    if not isinstance(value, int) or field.type in INT_RANGES:
        return value
    match field.type:
        case PrimitiveType.BOOLEAN:
            return bool(value)
        case DecimalType(_, scale):
            return f"{_decimal(value, scale):f}"
    try:
        result = python_key_value(field, value)
    except OverflowError:
        return value
    if isinstance(result, datetime):
        return result.replace(tzinfo=None).isoformat() + "Z"
    return result.isoformat() if isinstance(result, date) else value


def python_key_value(
    field: Field, value: KeyValue
) -> int | str | bytes | bool | Decimal | datetime | date:
    """Returns a value as Python has it. OverflowError for years that are not 1 to 9999."""
    if not isinstance(value, int):
        return value
    match field.type:
        case PrimitiveType.BOOLEAN:
            return bool(value)
        case PrimitiveType.TIMESTAMP:
            return _EPOCH + timedelta(microseconds=value)
        case PrimitiveType.DATE:
            return _EPOCH_DAY + timedelta(days=value)
        case DecimalType(_, scale):
            return _decimal(value, scale)
    return value


def _decimal(value: int, scale: int) -> Decimal:
    return Decimal(value).scaleb(-scale)


def _check_number(field: Field, number: int, value: object) -> int:
    numbers = key_number_range(field.type)
    assert numbers is not None
    low, high = numbers
    if low <= number <= high:
        return number
    limits = f" ({low} to {high})" if field.type in INT_RANGES else ""
    raise InvalidRequestError(
        f"field {field.name!r}: {value} does not fit {type_name(field.type)}{limits}"
    )


def _number(field: Field, value: object) -> int | None:
    """Returns the number of a value; None if it has another type. ValueError says what is wrong."""
    kind = field.type
    if isinstance(kind, DecimalType):
        return _unscaled(kind, value)
    if isinstance(value, bool):
        return int(value) if kind is PrimitiveType.BOOLEAN else None
    match kind:
        case PrimitiveType.TIMESTAMP:
            return _microseconds(value)
        case PrimitiveType.DATE:
            return _days(value)
        case PrimitiveType.BOOLEAN if isinstance(value, str):
            return {"true": 1, "false": 0}.get(value.strip().lower())
    return None


def _microseconds(value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        return int(text) if _NUMBER.fullmatch(text) else _parse_time(text)
    if isinstance(value, datetime):
        if getattr(value, "nanosecond", 0):
            raise ValueError("expected at most microseconds")
        time = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return (time - _EPOCH) // _MICROSECOND
    if isinstance(value, date):
        return (value - _EPOCH_DAY) // _MICROSECOND
    return value if isinstance(value, int) else None


def _parse_time(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    if fraction and fraction[_FRACTION_DIGITS:].strip("0"):
        raise ValueError("expected at most microseconds")
    zone = "+00:00" if zone in (None, "Z", "z") else zone
    time = datetime.fromisoformat(f"{day}T{clock or '00:00'}{zone}")
    micros = int((fraction or "")[:_FRACTION_DIGITS].ljust(_FRACTION_DIGITS, "0"))
    return (time - _EPOCH) // _MICROSECOND + micros


def _days(value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        return (date.fromisoformat(text) - _EPOCH_DAY).days if _DATE.fullmatch(text) else None
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return (value - _EPOCH_DAY).days
    return value if isinstance(value, int) else None


def _unscaled(kind: DecimalType, value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float | str):
        return None
    # The text of a float is its shortest decimal number.
    number = Decimal(str(value) if isinstance(value, float) else value)
    if not number.is_finite():
        raise ValueError("expected a finite number")
    if not number:
        return 0
    # An exponent may be huge, so the size is checked first.
    if number.adjusted() >= kind.precision - kind.scale:
        raise ValueError(f"expected at most {kind.precision} digits, {kind.scale} of them decimal")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    lost = max(-exponent - kind.scale, 0)
    if any(digits[len(digits) - lost :] if lost < len(digits) else digits) and lost:
        raise ValueError(f"expected at most {kind.scale} decimal places")
    kept = digits[: len(digits) - lost] + (0,) * max(exponent + kind.scale, 0)
    unscaled = int("".join(map(str, kept)))
    return -unscaled if sign else unscaled
