"""Values of items as DynamoDB's requests have them, such as `{"N": "1"}`.

A value is a dict with one member, whose name is the *type*. Items are never changed in place.
"""

import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from simulation.services.requests import client_error

Value = dict[str, Any]
Item = dict[str, Value]

_DIGITS_MAX = 38
_NUMBERS = Context(prec=_DIGITS_MAX)
_ORDERED_TYPES = {"S", "N", "B"}
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def invalid(message: str) -> Exception:
    """Returns the error of a request that DynamoDB does not accept."""
    return client_error("ValidationException", message, "DynamoDB")


def value_type(value: Value) -> str:
    """Returns the type, such as `S`."""
    (only,) = value
    return only


def plain(value: Value) -> Any:
    """Returns a text, a number or bytes as Python orders them: texts by code point."""
    (kind,) = value
    content = value[kind]
    if kind != "N":
        return content
    try:
        return int(content)
    except ValueError:
        return number(content)


def number(text: str) -> Decimal:
    """Returns the number of a text."""
    try:
        parsed = Decimal(text)
    except InvalidOperation as error:
        raise invalid("The parameter cannot be converted to a numeric value: " + text) from error
    if not parsed.is_finite():
        raise invalid("The parameter cannot be converted to a numeric value: " + text)
    if len(parsed.normalize(Context(prec=1000)).as_tuple().digits) > _DIGITS_MAX:
        raise invalid(
            "Attempting to store more than 38 significant digits in a Number: " + text[:60]
        )
    return parsed


def number_value(result: Decimal) -> Value:
    """Returns the value of a number in DynamoDB's form."""
    if result == result.to_integral_value():
        return {"N": str(int(result))}
    return {"N": format(result.normalize(_NUMBERS), "f")}


def add_numbers(left: Value, right: Value, sign: int) -> Value:
    """Returns the sum, or the difference if the sign is -1."""
    if "N" not in left or "N" not in right:
        raise invalid("An operand in the update expression has an incorrect data type")
    total = _NUMBERS.add(number(left["N"]), sign * number(right["N"]))
    return number_value(total)


def are_equal(left: Value, right: Value) -> bool:
    """Returns whether the values have the same type and content. Sets have no order."""
    kind = value_type(left)
    if kind != value_type(right):
        return False
    if kind == "N":
        return bool(plain(left) == plain(right))
    if kind == "NS":
        return set(map(number, left[kind])) == set(map(number, right[kind]))
    if kind in {"SS", "BS"}:
        return set(left[kind]) == set(right[kind])
    if kind == "L":
        pairs = zip(left[kind], right[kind], strict=False)
        return len(left[kind]) == len(right[kind]) and all(are_equal(*pair) for pair in pairs)
    if kind == "M":
        names = left[kind].keys()
        return names == right[kind].keys() and all(
            are_equal(left[kind][name], right[kind][name]) for name in names
        )
    return bool(left[kind] == right[kind])


def is_ordered(comparison: str, left: Value, right: Value) -> bool:
    """Returns whether `<`, `<=`, `>` or `>=` holds. False for values of different types."""
    kind = value_type(left)
    if kind != value_type(right) or kind not in _ORDERED_TYPES:
        return False
    return _ORDERS[comparison](plain(left), plain(right))


def item_bytes(item: Mapping[str, Value]) -> int:
    """Returns the size by which DynamoDB limits items and pages."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Value) -> int:
    """Returns the size of a value."""
    (kind,) = value
    content = value[kind]
    if kind == "S":
        return len(content) if content.isascii() else len(content.encode())
    if kind == "N":
        return len(content.lstrip("-")) // 2 + 2
    if kind == "B":
        return len(content)
    if kind in {"SS", "NS", "BS"}:
        return sum(value_bytes({kind[0]: each}) for each in content)
    if kind == "L":
        return 3 + sum(1 + value_bytes(each) for each in content)
    if kind == "M":
        return 3 + len(content) + item_bytes(content)
    return 1


def stored(value: Value) -> Value:
    """Returns the value as DynamoDB keeps it: numbers in one form, binary values as bytes."""
    (kind,) = value
    content = value[kind]
    if kind == "N":
        if content.isdigit() and len(content) <= _DIGITS_MAX and content[0] != "0":
            return value
        return number_value(number(content))
    if kind == "B":
        return value if type(content) is bytes else {"B": bytes(content)}
    if kind == "L":
        return {"L": [stored(each) for each in content]}
    if kind == "M":
        return {"M": {name: stored(each) for name, each in content.items()}}
    if kind in {"SS", "NS", "BS"} and not content:
        raise invalid("One or more parameter values were invalid: An string set  may not be empty")
    return value
