"""Types as text, in the form of `type_name`, such as `LongType` and `DecimalType(9,2)`."""

import re

from sleeper.errors import InvalidRequestError
from sleeper.schema.model import FieldType, field_type_from_json

_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_EXAMPLES = "LongType, DecimalType(9,2), ListType(StringType) or MapType(StringType,LongType)"


def parse_type(text: str) -> FieldType:
    """Returns the type of a text. InvalidRequestError if it is none."""
    raw = _to_json(text.strip())
    try:
        kind = field_type_from_json(raw)
    except InvalidRequestError as error:
        if isinstance(raw, str):
            raise InvalidRequestError(
                f"unknown type {text!r} (expected a type such as {_EXAMPLES})"
            ) from error
        raise InvalidRequestError(f"type {text!r}: {error}") from error
    return kind


def type_text_to_json(text: str) -> object:
    """Returns the JSON of a valid type, as a schema has it."""
    parse_type(text)
    return _to_json(text.strip())


def _to_json(text: str) -> object:
    call = _CALL.fullmatch(text)
    if call is None:
        return int(text) if text.isdecimal() else text
    name, inner = call.groups()
    members = _MEMBERS.get(name)
    arguments = _split(inner)
    if members is None or len(members) != len(arguments):
        return text
    return {name: {m: _to_json(each) for m, each in zip(members, arguments, strict=True)}}


_MEMBERS = {
    "ListType": ("elementType",),
    "MapType": ("keyType", "valueType"),
    "DecimalType": ("precision", "scale"),
}


def _split(text: str) -> list[str]:
    """Splits at commas outside of parentheses."""
    return [each.strip() for each in re.split(r",(?![^()]*\))", text)]
