"""The key regions that a predicate of Arrow needs.

Every row for which the predicate is true is in its regions. Arrow expressions show their parts
only in Substrait, a format of messages of Protocol Buffers. Parts that are not known do not narrow
the regions.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import InvalidRequestError
from sleeper.query.sql.key_predicates import (
    MIRRORED,
    Regions,
    intersect_regions,
    unite_regions,
    value_regions,
)
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import Field, KeyValue, PrimitiveType, Schema

# Numbers of the members of messages: substrait.ExtendedExpression and those in it.
_EXTENSIONS, _EXPRESSIONS = 2, 3
_EXTENSION_FUNCTION, _FUNCTION_ANCHOR, _FUNCTION_NAME = 3, 2, 3
_REFERRED_EXPRESSION = 1
_LITERAL, _SELECTION, _FUNCTION = 1, 2, 3
_FUNCTION_REFERENCE, _FUNCTION_ARGUMENTS, _ARGUMENT_VALUE = 1, 4, 3
_DIRECT_REFERENCE, _STRUCT_FIELD, _FIELD_PLACE, _FIELD_CHILD = 1, 2, 1, 2
_LITERALS = {
    PrimitiveType.INT: 5,
    PrimitiveType.LONG: 7,
    PrimitiveType.STRING: 12,
    PrimitiveType.BYTE_ARRAY: 13,
}
_COMPARISONS = {"equal": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
# Arrow declares each function again for the calls around it, so a message doubles with each level
# of calls (github.com/apache/arrow/issues/48761). This many levels take 30 ms.
_LEVELS_MAX = 10
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')

Message = Mapping[int, list[int | bytes]]


def find_regions(schema: Schema, columns: pa.Schema, predicate: pc.Expression) -> Regions:
    """Returns regions of all rows for which the predicate is true; `None` for all rows.

    `columns` are the columns of the predicate. One of many levels needs all rows.
    """
    if _count_levels(columns, predicate) > _LEVELS_MAX:
        return None
    try:
        message = _parse(bytes(predicate.to_substrait(columns)))
        names = dict(_functions(message))
        (referred,) = message[_EXPRESSIONS]
        root = _only(_parse(referred), _REFERRED_EXPRESSION)
        return _Reader(schema, columns, names).regions(root)
    except (pa.ArrowException, ValueError, KeyError, IndexError, TypeError):
        return None


def _count_levels(columns: pa.Schema, predicate: pc.Expression) -> int:
    """Returns the number of calls within each other, or a larger number."""
    text = str(predicate)
    if any(character in name for name in columns.names for character in '()"\\'):
        return text.count("(")
    levels = most = 0
    for character in _QUOTED.sub("", text):
        if character == "(":
            levels += 1
            most = max(most, levels)
        elif character == ")":
            levels -= 1
    return most


class _Reader:
    def __init__(self, schema: Schema, columns: pa.Schema, names: Mapping[int, str]) -> None:
        self._schema = schema
        self._columns = columns
        self._names = names

    def regions(self, expression: bytes) -> Regions:
        node = _parse(expression)
        if _FUNCTION not in node:
            return None
        function = _parse(_only(node, _FUNCTION))
        (reference,) = function.get(_FUNCTION_REFERENCE) or [0]
        assert isinstance(reference, int)
        name = self._names[reference]
        arguments = [_only(_parse(each), _ARGUMENT_VALUE) for each in function[_FUNCTION_ARGUMENTS]]
        if name in {"and", "or"}:
            parts = [self.regions(each) for each in arguments]
            result = parts[0]
            for part in parts[1:]:
                join = intersect_regions if name == "and" else unite_regions
                result = join(result, part)
            return result
        if name not in _COMPARISONS or len(arguments) != 2:
            return None
        op = _COMPARISONS[name]
        left, right = arguments
        field = self._key_field(left)
        if field is None:
            field, right, op = self._key_field(right), left, MIRRORED[op]
        value = None if field is None else _key_value(field, right)
        if field is None or value is None:
            return None
        return value_regions(self._schema, field, op, value)

    def _key_field(self, expression: bytes) -> Field | None:
        node = _parse(expression)
        if _SELECTION not in node:
            return None
        direct = _parse(_only(_parse(_only(node, _SELECTION)), _DIRECT_REFERENCE))
        field = _parse(_only(direct, _STRUCT_FIELD))
        if _FIELD_CHILD in field:
            return None
        # A place of 0 is not written.
        (position,) = field.get(_FIELD_PLACE) or [0]
        assert isinstance(position, int)
        name = self._columns.field(position).name
        return next((each for each in self._schema.row_keys if each.name == name), None)


def _key_value(field: Field, expression: bytes) -> KeyValue | None:
    """Returns the value of a literal of the field's type; `None` for anything else."""
    node = _parse(expression)
    member = _LITERALS.get(field.type) if isinstance(field.type, PrimitiveType) else None
    if _LITERAL not in node or member is None:
        return None
    result = _parse(_only(node, _LITERAL)).get(member)
    if not result:
        return None
    value: object = result[0]
    if isinstance(value, int):
        value -= (value >> 63) << 64  # in two's complement
    elif field.type is PrimitiveType.STRING:
        assert isinstance(value, bytes)
        value = value.decode()
    try:
        return check_key_value(field, value)
    except InvalidRequestError:
        return None


def _functions(message: Message) -> Iterator[tuple[int, str]]:
    for extension in message.get(_EXTENSIONS, []):
        declared = _parse(extension)
        if _EXTENSION_FUNCTION in declared:
            function = _parse(_only(declared, _EXTENSION_FUNCTION))
            (anchor,) = function.get(_FUNCTION_ANCHOR) or [0]
            assert isinstance(anchor, int)
            yield anchor, _only(function, _FUNCTION_NAME).decode().partition(":")[0]


def _only(message: Message, member: int) -> bytes:
    (value,) = message[member]
    if not isinstance(value, bytes):
        raise ValueError(f"member {member} is a number (expected a message)")
    return value


def _parse(data: int | bytes) -> Message:
    """Returns the values of each member of a message. ValueError if it is none."""
    if isinstance(data, int):
        raise ValueError("a number (expected a message)")
    members: defaultdict[int, list[int | bytes]] = defaultdict(list)
    position = 0
    while position < len(data):
        tag, position = _read_number(data, position)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, position = _read_number(data, position)
        else:
            if kind == 2:
                size, position = _read_number(data, position)
            else:
                size = {1: 8, 5: 4}[kind]
            value, position = data[position : position + size], position + size
        members[tag >> 3].append(value)
    if position != len(data):
        raise ValueError("the message is cut")
    return dict(members)


def _read_number(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
