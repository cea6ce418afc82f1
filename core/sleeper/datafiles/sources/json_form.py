"""Blocks of JSON lines of one form, which the engine parses.

The engine parses maps, which Arrow does not, but ignores unknown and duplicate members, truncates
1.5 to an integer, and reads text as a number. So it is given only blocks whose lines have a *form*:
the members of the first lines in their order, of which all but the first may be missing, and values
in the notation of the fields' types. Such blocks are valid, except for numbers out of range and
duplicate keys in maps. The form is a regular expression, which RE2 matches in one pass over the
block. For fields without maps, Arrow takes as long as match and engine together.
"""

import json
import os
from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionConfig, SessionContext

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.casts import infinities
from sleeper.datafiles.sources.files import Columns
from sleeper.datafiles.text_values import TEXT_IN_JSON
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)

_LINE_FEED, _BRACE = ord("\n"), ord("{")
# NumPy's results for such parts stay in the processor's cache. Those for blocks are new pages.
_PART_BYTES = 64 * 1024
_SAMPLE_LINES = 50
_FORMS_MAX = 8
_SPACE = r"[ \t]*"
# Without the escapes of surrogates, of which the engine confuses some.
_TEXT = (
    r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]'
    r'|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))*"'
)
_FLOAT = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NOTATIONS = {
    PrimitiveType.INT: r"-?(?:0|[1-9][0-9]{0,9})",
    # The engine accepts some numbers below the least long.
    PrimitiveType.LONG: r"-?(?:0|[1-9][0-9]{0,17}|[1-8][0-9]{18})",
    PrimitiveType.FLOAT: _FLOAT,
    PrimitiveType.DOUBLE: _FLOAT,
    PrimitiveType.BOOLEAN: "true|false",
    # Which stands for the value: `raw_members`.
    PrimitiveType.JSON: "0",
}


class FormReader:
    """Parses the blocks of one file that have a form. Several threads may use it."""

    def __init__(self, schema: Schema) -> None:
        self._fields = {field.name: field for field in schema.fields}
        self._kind = pa.schema([(f.name, engine_type(f.type)) for f in schema.fields])
        self._form: str | None = None
        self._forms_left = _FORMS_MAX if hasattr(os, "memfd_create") else 0

    def read(self, block: bytes) -> Columns | None:
        """Returns all columns with their types in the engine, None if the block has no form.

        Maps have text as keys. Fields of `TEXT_IN_JSON` are text.
        """
        if self._form is None or not _matches(block, self._form):
            # A form without a match is replaced a few times, because it takes a pass.
            if not self._forms_left:
                return None
            self._forms_left -= 1
            form = make_form(block, self._fields)
            if form is None or not _matches(block, form):
                return None
            self._form = form
        try:
            columns = _read(block, self._kind)
        except Exception:  # DataFusion raises bare exceptions, here for numbers out of range
            return None
        is_whole = all(len(column) == count_lines(block) for column in columns.values())
        is_finite = not any(infinities(column) for column in columns.values())
        return columns if is_whole and is_finite else None


def count_lines(block: bytes) -> int:
    """Returns the number of lines of the block, the last of which may have no end."""
    content = np.frombuffer(block, np.uint8)
    parts = (content[start : start + _PART_BYTES] for start in range(0, len(block), _PART_BYTES))
    ends = sum(int(np.count_nonzero(part == _LINE_FEED)) for part in parts)
    return ends + (not block.endswith(b"\n"))


def has_object_lines(block: bytes) -> bool:
    """Whether each line begins with a brace, so that none is blank or continues another."""
    content = np.frombuffer(block, np.uint8)
    for start in range(0, len(block), _PART_BYTES):
        part = content[start : start + _PART_BYTES + 1]
        if ((part[:-1] == _LINE_FEED) & (part[1:] != _BRACE)).any():
            return False
    return block.startswith(b"{")


def make_form(block: bytes, fields: dict[str, Field]) -> str | None:
    """Returns the form of the block's first lines, None if they have none."""
    names: list[str] = []
    for line in block.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]:
        try:
            members = json.loads(line) if line else {}
        except (ValueError, RecursionError):
            return None
        if not isinstance(members, dict) or not fields.keys() >= members.keys():
            return None
        _insert(names, list(members))
    if not names:
        return None
    first, *others = (_member(fields[name]) for name in names)
    optional = "".join(rf"(?:{_SPACE},{_SPACE}{member})?" for member in others)
    line_form = rf"\{{{_SPACE}{first}{optional}{_SPACE}\}}[ \t\r]*"
    return rf"\A(?:{line_form}\n)*(?:{line_form})?\z"


def _insert(names: list[str], members: Sequence[str]) -> None:
    """Inserts new members after those that precede them in their line."""
    position = 0
    for name in members:
        if name in names:
            position = names.index(name) + 1
        else:
            names.insert(position, name)
            position += 1


def _member(field: Field) -> str:
    written = {json.dumps(field.name, ensure_ascii=is_ascii) for is_ascii in (True, False)}
    names = "|".join("".join(rf"\x{byte:02x}" for byte in each.encode()) for each in written)
    return rf"(?:{names}){_SPACE}:{_SPACE}(?:{_notation(field.type)}|null)"


def _notation(kind: FieldType) -> str:
    match kind:
        case ListType(element):
            return rf"\[{_SPACE}(?:{_repeated(_notation(element))})?{_SPACE}\]"
        case MapType(_, value):
            entry = rf"{_TEXT}{_SPACE}:{_SPACE}(?:{_notation(value)})"
            return rf"\{{{_SPACE}(?:{_repeated(entry)})?{_SPACE}\}}"
        case DecimalType(precision, scale):
            whole = precision - scale
            digits = rf"0|[1-9][0-9]{{0,{whole - 1}}}" if whole else "0"
            return rf"-?(?:{digits})" + (rf"(?:\.[0-9]{{1,{scale}}})?" if scale else "")
        case _:
            return _NOTATIONS.get(kind, _TEXT)


def _repeated(item: str) -> str:
    return rf"(?:{item})(?:{_SPACE},{_SPACE}(?:{item}))*"


def _matches(block: bytes, form: str) -> bool:
    # RE2 compares bytes, not characters, if the type is binary.
    try:
        return bool(pc.match_substring_regex(pa.scalar(block, pa.binary()), form).as_py())
    except pa.ArrowInvalid:  # the expression is too large
        return False


def engine_type(kind: FieldType) -> pa.DataType:
    """Returns the type as which the engine parses a field."""
    match kind:
        case MapType(_, value):
            return pa.map_(pa.string(), engine_type(value))
        case ListType(element):
            return pa.list_(engine_type(element))
        case PrimitiveType.JSON:
            return pa.int8()
        case _:
            return pa.string() if kind in TEXT_IN_JSON else arrow_type(kind)


def _read(block: bytes, kind: pa.Schema) -> Columns:
    # The engine reads files only, so the block becomes one in memory.
    descriptor = os.memfd_create("sleeper-json")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(block)
        path = f"file:///proc/self/fd/{descriptor}"
        frame = _session().read_json(path, schema=kind, file_extension="")
        table = pa.Table.from_batches(frame.collect(), kind)
    finally:
        os.close(descriptor)
    return {name: table.column(name).combine_chunks() for name in kind.names}


@cache
def _session() -> SessionContext:
    # Several partitions would return the rows in any order.
    return SessionContext(SessionConfig().with_target_partitions(1))
