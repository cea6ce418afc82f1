"""Parses lines of JSON into columns of a table.

Arrow parses blocks of lines. Values that it does not accept are rewritten first: a map is an
object (Arrow expects a list of pairs), and a float without a JSON number is `"NaN"`,
`"Infinity"` or `"-Infinity"` (Arrow expects them unquoted). Bytes, timestamps and dates are text.
"""

import contextlib
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.casts import infinities
from sleeper.datafiles.sources.files import Columns, combined
from sleeper.datafiles.sources.json_form import FormReader, count_lines, has_object_lines
from sleeper.datafiles.sources.json_hazards import check_depth, check_objects
from sleeper.datafiles.sources.line_documents import NO_DOCUMENTS, separate_documents
from sleeper.datafiles.sources.nested import OPTION_HINT
from sleeper.datafiles.sources.raw_members import separate_raw_members
from sleeper.datafiles.text_values import DECIMAL_DIGITS_MAX, TEXT_IN_JSON, parse_values
from sleeper.datafiles.validity import UnfitError, check_unique_keys
from sleeper.errors import did_you_mean
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    type_name,
)

NOT_ROWS = (pa.ArrowInvalid, ValueError, UnfitError, RecursionError)
"""The errors of `parse_lines` for invalid lines."""

_FLOATS = frozenset({PrimitiveType.FLOAT, PrimitiveType.DOUBLE})
_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_QUOTED_CONSTANT = re.compile(rb'"(NaN|-?Infinity)"')


def parse_lines(
    lines: Sequence[bytes], schema: Schema, only: str | None = None, ignores_extra: bool = False
) -> Columns:
    """Returns the schema's columns, or only one of them, none if the lines are blank.

    Fields of `TEXT_IN_JSON` are text, all others have their types. Nulls are not checked.
    Raises one of `NOT_ROWS` if a line is not an object of such members, or has other ones unless
    `ignores_extra`.
    """
    fields = [f for f in schema.fields if only in (None, f.name)]
    rows = [line for line in lines if line.strip()]
    if not rows:
        return {}
    check_objects(rows)
    ended = b"".join(row if row.endswith(b"\n") else row + b"\n" for row in rows)
    content, documents = ended, NO_DOCUMENTS
    if only is None:
        content, documents = separate_documents(ended, schema)
    content, raw = separate_raw_members(content, fields)
    if any(isinstance(f.type, MapType) for f in fields):
        lines = content.removesuffix(b"\n").split(b"\n")
        content = b"".join(_with_maps_as_pairs(line, fields) for line in lines)
    else:
        content = _with_bare_constants(content, fields)
    kinds = {f.name: _json_type(f.type) for f in fields}
    read = _read(content, kinds, len(rows), ignores_extra)
    _check_overflow(rows, fields, read)
    typed = {f.name: _typed(read[f.name], f.type) for f in fields}
    return documents.put_into(raw.put_into(typed))


def parse_block(block: bytes, schema: Schema) -> Columns:
    """Returns the schema's columns of a block of lines, as `parse_lines` does.

    Timestamps have their type already if Arrow can parse them.
    """
    kinds = {
        f.name: arrow_type(f.type) if f.type is PrimitiveType.TIMESTAMP else _json_type(f.type)
        for f in schema.fields
    }
    columns = _parse_whole(block, schema, kinds, ignores_extra=False)
    return parse_lines(block.split(b"\n"), schema) if columns is None else columns


class BlockParser:
    """Parses the blocks of lines of one file. Several threads may use it."""

    def __init__(self, schema: Schema, ignores_extra: bool) -> None:
        self._schema = schema
        self._ignores_extra = ignores_extra
        self._kinds = {f.name: _json_type(f.type) for f in schema.fields}
        self._forms = FormReader(schema)

    def parse(self, block: bytes) -> Columns | None:
        """Returns the schema's columns, as `parse_lines` does.

        None if the block may be invalid, or has values that need a look at each line.
        """
        with contextlib.suppress(*NOT_ROWS):
            return self._parse(block)
        return None

    def _parse(self, block: bytes) -> Columns | None:
        schema = self._schema
        if not _has_maps(schema):
            return _parse_whole(block, schema, self._kinds, self._ignores_extra)
        content, documents = separate_documents(block, schema)
        content, raw = separate_raw_members(content, schema.fields)
        columns = self._forms.read(content)
        if columns is None:
            return None
        typed = {f.name: _typed(columns[f.name], f.type) for f in schema.fields}
        return documents.put_into(raw.put_into(typed))


def _has_maps(schema: Schema) -> bool:
    return any(isinstance(field.type, MapType) for field in schema.fields)


def _parse_whole(
    block: bytes, schema: Schema, kinds: dict[str, pa.DataType], ignores_extra: bool
) -> Columns | None:
    """Parses a block without a look at its lines. None if it has values that need one."""
    if _has_maps(schema) or not has_object_lines(block):
        return None
    with contextlib.suppress(*NOT_ROWS):
        content, documents = separate_documents(block, schema)
        content, raw = separate_raw_members(content, schema.fields)
        read = _read(content, kinds, count_lines(block), ignores_extra)
        if not any(infinities(column) for column in read.values()):
            typed = {f.name: _typed(read[f.name], f.type) for f in schema.fields}
            return documents.put_into(raw.put_into(typed))
    return None


def reason_against(line: bytes, schema: Schema, error: Exception) -> str:
    """Returns the reason why a line is invalid, with the field if it is a field's value."""
    with contextlib.suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict):
            fault = _find_fault(row, schema) or _find_unknown(row, schema, error)
            return fault or f"not a row of the table: {_first_line(error)}"
    return f"not a JSON object, which each line must be: {_first_line(error)}"


def _find_fault(row: dict[str, Any], schema: Schema) -> str | None:
    """Returns the fault of the first invalid member, None if all are valid."""
    for name in (f.name for f in schema.fields if f.name in row):
        try:
            parse_lines([json.dumps({name: row[name]}).encode()], schema, only=name)
        except NOT_ROWS as error:
            is_text = schema.field(name).type is PrimitiveType.STRING
            hint = f" ({OPTION_HINT})" if is_text and isinstance(row[name], dict | list) else ""
            return f"field {name!r}: {_first_line(error)}{hint}"
    return None


def _find_unknown(row: dict[str, Any], schema: Schema, error: Exception) -> str | None:
    names = [field.name for field in schema.fields]
    unknown = next((name for name in row if name not in names), None)
    if unknown is None or "unexpected field" not in str(error):
        return None
    return f"field {unknown!r} is not in the schema{did_you_mean(unknown, names)}"


def _first_line(error: Exception) -> str:
    """Returns Arrow's message without its row number, which is not the file's."""
    return re.sub(r" in row \d+$", "", str(error).splitlines()[0])


def _read(content: bytes, kinds: dict[str, pa.DataType], rows: int, ignores_extra: bool) -> Columns:
    check_depth(content)
    table = pj.read_json(
        io.BytesIO(content),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(content) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(list(kinds.items())),
            unexpected_field_behavior="ignore" if ignores_extra else "error",
        ),
    )
    if table.num_rows != rows:
        raise ValueError("more than one object in a line")
    return {name: combined(table.column(name)) for name in kinds}


def _json_type(kind: FieldType) -> pa.DataType:
    match kind:
        case MapType(_, value):
            return pa.list_(pa.struct([("key", pa.string()), ("value", _json_type(value))]))
        case ListType(element):
            return pa.list_(_json_type(element))
        case DecimalType(_, scale):
            # Arrow checks the digits of the text but not those after rescaling, so the type must
            # have room for them. The cast to the field's type checks the precision.
            return pa.decimal256(DECIMAL_DIGITS_MAX, scale)
        case PrimitiveType.JSON:
            return pa.int8()
        case _:
            return pa.string() if kind in TEXT_IN_JSON else arrow_type(kind)


def _typed(column: pa.Array, kind: FieldType) -> pa.Array:
    match kind:
        case MapType(key, value) if pa.types.is_map(column.type):
            return _typed_map(column, key, value)
        case MapType(key, value):
            keys, values = column.flatten().flatten()
            parsed_keys = parse_values(keys, key)
            check_unique_keys(pc.list_parent_indices(column).to_numpy(), parsed_keys)
            parsed = parse_values(values, value) if value in TEXT_IN_JSON else values
            return pa.MapArray.from_arrays(_offsets_with_nulls(column), parsed_keys, parsed)
        case ListType(element) if element in TEXT_IN_JSON:
            elements = parse_values(column.flatten(), element)
            return pa.ListArray.from_arrays(_offsets_with_nulls(column), elements)
        case _:
            return column


def _typed_map(column: pa.MapArray, key: FieldType, value: FieldType) -> pa.MapArray:
    """Parses a map with text as keys."""
    offsets = column.offsets.to_numpy()
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = parse_values(column.keys.slice(start, count), key)
    check_unique_keys(np.repeat(np.arange(len(column)), np.diff(offsets)), keys)
    values = column.items.slice(start, count)
    if value in TEXT_IN_JSON:
        values = parse_values(values, value)
    is_null = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets - start), keys, values, mask=is_null)


def _offsets_with_nulls(lists: pa.ListArray) -> pa.Array:
    """Returns the offsets into the flattened values, null for null lists."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    if not lists.null_count:
        return offsets
    present = pa.concat_arrays([lists.is_valid(), pa.array([True])])
    return pc.if_else(present, offsets, pa.scalar(None, pa.int32()))


def _check_overflow(rows: Sequence[bytes], fields: Sequence[Field], read: Columns) -> None:
    """Raises UnfitError for numbers too large for a float, because Arrow reads them as infinite."""
    for field in fields:
        column = read[field.name]
        count = infinities(column)
        if not count:
            continue
        lines = (json.loads(rows[i], parse_float=Decimal) for i in _infinite_rows(column))
        if count > sum(_named_infinities(line[field.name]) for line in lines):
            raise UnfitError(f"too large for {type_name(_element(field.type))}")


def _infinite_rows(column: pa.Array) -> Iterable[int]:
    """Returns the rows with an infinite float in a column, its lists, or maps as pairs."""
    if not pa.types.is_list(column.type):
        return map(int, pc.indices_nonzero(pc.is_inf(column)).to_pylist())
    values = column.flatten()
    if pa.types.is_struct(values.type):
        values = values.flatten()[1]
    rows = pc.list_parent_indices(column).filter(pc.is_inf(values)).unique()
    return map(int, rows.to_pylist())


def _named_infinities(value: Any) -> int:
    """Counts values that are infinite by name. Numbers are parsed as Decimal."""
    values = value.values() if isinstance(value, dict) else value
    return sum(
        v in ("Infinity", "-Infinity") or (isinstance(v, float) and math.isinf(v))
        for v in (values if isinstance(value, dict | list) else [value])
    )


def _element(kind: FieldType) -> FieldType:
    match kind:
        case MapType(_, value):
            return value
        case ListType(element):
            return element
        case _:
            return kind


def _with_bare_constants(content: bytes, fields: Sequence[Field]) -> bytes:
    names = [f.name for f in fields if _element(f.type) in _FLOATS]
    if not names or not (b'"NaN"' in content or b'Infinity"' in content):
        return content
    written = {json.dumps(n, ensure_ascii=a).encode() for n in names for a in (True, False)}
    # Quotes inside text are escaped, so these matches are members of flat rows.
    members = re.compile(
        rb"(?<=[{,\s])((?:%b)\s*:\s*)" % b"|".join(map(re.escape, written))
        + rb'("(?:NaN|-?Infinity)"|\[[^\[\]]*\])'
    )
    return members.sub(lambda m: m[1] + _QUOTED_CONSTANT.sub(rb"\1", m[2]), content)


class _Members(list[tuple[str, Any]]):
    """The members of an object, with possible duplicates."""


def _with_maps_as_pairs(line: bytes, fields: Sequence[Field]) -> bytes:
    # Arrow has no strict parser for maps, so each row is parsed separately.
    parse_int = _signed if b"-0" in line else None
    row = json.loads(line, parse_float=Decimal, parse_int=parse_int, object_pairs_hook=_Members)
    if not isinstance(row, _Members):
        raise ValueError("not an object")
    members = dict(row)
    if len(members) < len(row):
        raise ValueError("duplicate member")
    for field in fields:
        if field.name in members:
            members[field.name] = _arrow_json(members[field.name], field.type)
    return json.dumps(members, default=_digits).encode() + b"\n"


def _arrow_json(value: Any, kind: FieldType) -> Any:
    """Returns the value in the form that Arrow's JSON reader accepts."""
    match kind:
        case MapType(_, value_type) if isinstance(value, _Members):
            return [{"key": k, "value": _arrow_json(v, value_type)} for k, v in value]
        case ListType(element) if isinstance(value, list) and not isinstance(value, _Members):
            return [_arrow_json(each, element) for each in value]
        case DecimalType() if not isinstance(value, float):
            return dict(value) if isinstance(value, _Members) else value
        case _ if isinstance(value, Decimal):
            number = float(value)
            # Arrow reads the digits as infinite, but accepts no number as text.
            return value if kind in _FLOATS and math.isinf(number) else number
        case _ if kind in _FLOATS and isinstance(value, str):
            return _CONSTANTS.get(value, value)
        case _ if isinstance(value, float) and not value and kind not in _FLOATS:
            return 0
        case _:
            return dict(value) if isinstance(value, _Members) else value


def _signed(digits: str) -> int | float:
    """Returns -0 as a float, because an integer has no negative zero."""
    return -0.0 if digits == "-0" else int(digits)


def _digits(number: object) -> str:
    """Returns a decimal as text, which keeps its digits. Arrow accepts it for decimals only."""
    if not isinstance(number, Decimal):
        raise TypeError(f"{number!r} is not JSON")
    return str(number)
