"""The narrowest type that holds the values of two types."""

from functools import cache

from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType

_DIGITS_MAX = 38
_DIGITS = {PrimitiveType.INT: 10, PrimitiveType.LONG: 19}
# A float holds no long exactly, and few integers.
_PAIRS = {
    frozenset({PrimitiveType.INT, PrimitiveType.LONG}): PrimitiveType.LONG,
    frozenset({PrimitiveType.INT, PrimitiveType.FLOAT}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.INT, PrimitiveType.DOUBLE}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.LONG, PrimitiveType.FLOAT}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.LONG, PrimitiveType.DOUBLE}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.FLOAT, PrimitiveType.DOUBLE}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.DATE, PrimitiveType.TIMESTAMP}): PrimitiveType.TIMESTAMP,
}


@cache
def widen(left: FieldType, right: FieldType) -> FieldType:
    """Returns the type of both, StringType if they have no other one in common."""
    if left == right:
        return left
    match left, right:
        case ListType(one), ListType(other):
            element = widen(one, other)
            assert isinstance(element, PrimitiveType | DecimalType)
            return ListType(element)
        case MapType(key, one), MapType(other_key, other) if key == other_key:
            value = widen(one, other)
            assert isinstance(value, PrimitiveType | DecimalType)
            return MapType(key, value)
        case (DecimalType(), _) | (_, DecimalType()):
            return _widen_decimals(_as_decimal(left), _as_decimal(right))
    return _PAIRS.get(frozenset((left, right)), PrimitiveType.STRING)  # type: ignore[arg-type]


def _as_decimal(kind: FieldType) -> DecimalType | None:
    if isinstance(kind, DecimalType):
        return kind
    digits = _DIGITS.get(kind) if isinstance(kind, PrimitiveType) else None
    return None if digits is None else DecimalType(digits, 0)


def _widen_decimals(left: DecimalType | None, right: DecimalType | None) -> FieldType:
    if left is None or right is None:
        return PrimitiveType.STRING
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale > _DIGITS_MAX:
        return PrimitiveType.STRING
    return DecimalType(whole + scale, scale)
