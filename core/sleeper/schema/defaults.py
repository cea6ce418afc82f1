"""Default values of fields: checked, and in one form of JSON, without Arrow."""

import base64
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from sleeper.errors import InvalidRequestError
from sleeper.lenient_json import is_unicode
from sleeper.schema.model import (
    INT_RANGES,
    DecimalType,
    Default,
    Field,
    FieldType,
    PrimitiveType,
    type_name,
)

DefaultValue = int | float | str | bool | bytes | Decimal | datetime | date


def check_default(field: Field) -> Default | None:
    """Returns the field's default in the form that schemas store, None if it has none.

    A float has the value that its type can hold, so that a file and the default agree.
    InvalidRequestError if it does not fit the field's type.
    """
    if field.default is None:
        return None
    value = default_value(field)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return f"{value:f}" if isinstance(value, Decimal) else value.isoformat()


def parse_default(kind: FieldType, text: str) -> Default:
    """Returns the default that a text means, such as that of an option.

    The text of numbers and truth values is JSON; it is not checked further.
    """
    try:
        if kind is PrimitiveType.BOOLEAN and text in ("true", "false"):
            return text == "true"
        if kind in INT_RANGES:
            return int(text)
        if kind in (PrimitiveType.FLOAT, PrimitiveType.DOUBLE):
            return float(text)
    except ValueError:
        pass
    return text


def default_value(field: Field) -> DefaultValue:
    """Returns the field's default as a value of its type. InvalidRequestError if it does not fit.

    The field has a default.
    """
    raw = field.default
    try:
        return _value(field.type, raw)
    except (ValueError, OverflowError, InvalidOperation, TypeError) as error:
        raise InvalidRequestError(
            f"field {field.name!r}: default {raw!r} does not fit {type_name(field.type)} ({error})"
        ) from error


def _value(kind: FieldType, raw: Default | None) -> DefaultValue:
    if isinstance(kind, DecimalType):
        return _decimal(kind, raw)
    if kind in (PrimitiveType.FLOAT, PrimitiveType.DOUBLE):
        return _float(kind, raw)
    if kind is PrimitiveType.BOOLEAN and isinstance(raw, bool):
        return raw
    if kind in INT_RANGES and isinstance(raw, int) and not isinstance(raw, bool):
        low, high = INT_RANGES[kind]
        if low <= raw <= high:
            return raw
        raise ValueError(f"expected {low} to {high}")
    value = _from_text(kind, raw) if isinstance(raw, str) else None
    if value is None:
        expected = _EXPECTED.get(kind) if isinstance(kind, PrimitiveType) else None
        raise ValueError(
            f"expected {expected or 'none, because lists, maps and JSON have no default'}"
        )
    return value


def _from_text(kind: FieldType, text: str) -> DefaultValue | None:
    match kind:
        case PrimitiveType.STRING:
            return text if is_unicode(text) else None
        case PrimitiveType.BYTE_ARRAY:
            return base64.b64decode(text, validate=True)
        case PrimitiveType.DATE:
            return date.fromisoformat(text)
        case PrimitiveType.TIMESTAMP:
            time = datetime.fromisoformat(text)
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        case _:
            return None


_EXPECTED = {
    PrimitiveType.INT: "an integer",
    PrimitiveType.LONG: "an integer",
    PrimitiveType.STRING: "Unicode text",
    PrimitiveType.BYTE_ARRAY: "base64 text",
    PrimitiveType.BOOLEAN: "true or false",
    PrimitiveType.DATE: "text such as 2026-01-31",
    PrimitiveType.TIMESTAMP: "text such as 2026-01-31T12:00:00Z",
}


def _float(kind: FieldType, raw: Default | None) -> float:
    if isinstance(raw, bool | str) or raw is None:
        raise ValueError("expected a number")
    value = float(raw)
    if kind is PrimitiveType.FLOAT:
        (value,) = struct.unpack("f", struct.pack("f", value))
    if not math.isfinite(value):
        raise ValueError("expected a finite number")
    return value


def _decimal(kind: DecimalType, raw: Default | None) -> Decimal:
    if not isinstance(raw, int | str) or isinstance(raw, bool):
        raise ValueError("expected text such as 12.50")
    value = Decimal(raw)
    if not value.is_finite():
        raise ValueError("expected a finite number")
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = len(digits) + exponent
    if -exponent > kind.scale and any(digits[exponent + kind.scale :]):
        raise ValueError(f"expected at most {kind.scale} decimal places")
    if any(digits) and whole > kind.precision - kind.scale:
        raise ValueError(f"expected at most {kind.precision} digits")
    return Decimal(f"{value:.{kind.scale}f}")
