"""Nested values that become JSON text, for fields of text, on request."""

import re
from collections.abc import Collection

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.casts import cast_or_find
from sleeper.datafiles.json_text import json_values
from sleeper.datafiles.sources.json_hazards import check_depth, check_objects
from sleeper.datafiles.validity import check_values
from sleeper.schema.model import Field, PrimitiveType, Schema

OPTION_HINT = "pass --nested json, in Python nested='json', to keep it as JSON text"

_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NESTED_STARTS = (b"{", b"[")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def nested_text(column: pa.Array, field: Field) -> tuple[pa.Array, dict[int, str]]:
    """Returns the JSON of each value of a nested column, as `cast_column` does."""
    return cast_or_find(column, field, _json)


def _json(column: pa.Array) -> pa.Array:
    check_values(column)
    return pc.if_else(column.is_valid(), json_values(column), None)


def find_text_fields(schema: Schema) -> frozenset[str]:
    """Returns the names of the fields that can have JSON text."""
    return frozenset(f.name for f in schema.fields if f.type is PrimitiveType.STRING)


def quote_nested(block: bytes, names: Collection[str]) -> bytes:
    """Returns lines of JSON whose nested values of these members are text.

    The text is that of the file. A line that is no JSON object stays as it is.
    """
    return b"\n".join(_quote_line(line, names) for line in block.split(b"\n"))


def _quote_line(line: bytes, names: Collection[str]) -> bytes:
    try:
        check_objects([line])
        check_depth(line)
        members = _MEMBERS.decode(line)
        nested = {
            name: bytes(value).decode()
            for name, value in members.items()
            if name in names and bytes(value).startswith(_NESTED_STARTS)
        }
    except (ValueError, RecursionError):
        return line
    # Of a repeated member one is lost here, so the parser is left to refuse the line.
    inside = sum(_count_colons(bytes(value)) for value in members.values())
    if not nested or _count_colons(line) != len(members) + inside:
        return line
    return msgspec.json.encode(members | nested)


def _count_colons(content: bytes) -> int:
    return _TEXT.sub(b"", content).count(b":")
