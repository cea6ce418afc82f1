"""The Arrow schema of a table, and casts of columns to it.

A cast never changes a value: integers may become narrower if they fit, any layout of text, bytes
or decimals is accepted, timestamps may change unit without loss. Text of CSV and JSON lines is
parsed. Values that do not fit are reported by row. They are found by halving the column, so
only a failing batch takes more than one vectorised call.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionContext, col, functions

from sleeper.datafiles.times import parse_times
from sleeper.errors import InvalidRequestError, UnavailableError, is_transient
from sleeper.schema.defaults import default_value
from sleeper.schema.model import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    type_name,
)
from sleeper.schema.model import Field as SchemaField

_PRIMITIVES: dict[PrimitiveType, pa.DataType] = {
    PrimitiveType.INT: pa.int32(),
    PrimitiveType.LONG: pa.int64(),
    PrimitiveType.STRING: pa.string(),
    PrimitiveType.BYTE_ARRAY: pa.binary(),
    PrimitiveType.BOOLEAN: pa.bool_(),
    PrimitiveType.FLOAT: pa.float32(),
    PrimitiveType.DOUBLE: pa.float64(),
    PrimitiveType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    PrimitiveType.DATE: pa.date32(),
}

# The metadata of an Arrow field that pyarrow and DataFusion write as its Parquet field id.
FIELD_ID = "PARQUET:field_id"

DECIMAL_DIGITS_MAX = 38
_DECIMAL_TEXT = (
    rf"^[+-]?(\d{{1,{DECIMAL_DIGITS_MAX}}}(\.\d{{0,{DECIMAL_DIGITS_MAX}}})?"
    rf"|\.\d{{1,{DECIMAL_DIGITS_MAX}}})([eE][+-]?\d{{1,3}})?$"
)

# Validity and views. Further buffers hold values that do not fit into a view.
_BUFFERS_OF_SHORT_VIEWS = 2

Cast = Callable[[pa.Array], pa.Array]


def arrow_type(field_type: FieldType) -> pa.DataType:
    """Returns the Arrow type of the field type in files and results."""
    match field_type:
        case PrimitiveType():
            return _PRIMITIVES[field_type]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ListType(element):
            return pa.list_(pa.field("element", arrow_type(element), nullable=False))
        case MapType(key, value):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), nullable=False))


def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns the Arrow schema of the table's files and results, in file order."""
    return pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in schema.fields])


def view_schema(schema: Schema) -> pa.Schema:
    """Returns the Arrow schema with top-level text and bytes as views, as DataFusion reads it."""
    return pa.schema(
        [pa.field(f.name, _view_type(arrow_type(f.type)), f.nullable) for f in schema.fields]
    )


def file_schema(schema: Schema) -> pa.Schema:
    """Returns the `view_schema` with the ids of the fields, for writers of data files.

    Results have no ids, so readers use the other schemas.
    """
    fields = zip(view_schema(schema), schema.fields, strict=True)
    return pa.schema([kind.with_metadata({FIELD_ID: str(each.id)}) for kind, each in fields])


def _view_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.string_view()
    return pa.binary_view() if pa.types.is_binary(kind) else kind


def as_plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns the column without views, for kernels that do not support them."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


def as_light_views(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Returns the batch in the table's `view_schema`, without references to other memory.

    Views of long values may keep whole pages alive, so such columns are copied. Values of up to
    12 bytes are stored in the views themselves.
    """
    columns = []
    for column, field in zip(batch.columns, target, strict=True):
        if len(column.buffers()) > _BUFFERS_OF_SHORT_VIEWS:
            column = as_plain(column)
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def is_castable(source: pa.DataType, target: FieldType) -> bool:
    """Whether some values of the Arrow type can fit the field type."""
    if pa.types.is_dictionary(source):
        source = source.value_type
    if pa.types.is_null(source):
        return True
    match target:
        case PrimitiveType():
            return any(fits(source) for fits in _CASTABLE_FROM[target])
        case DecimalType():
            return bool(pa.types.is_decimal(source) or pa.types.is_integer(source))
        case ListType(element):
            return _is_list(source) and is_castable(source.value_type, element)
        case MapType(key, value):
            return (
                bool(pa.types.is_map(source))
                and is_castable(source.key_type, key)
                and is_castable(source.item_type, value)
            )


def cast_column(column: pa.Array, field: SchemaField) -> tuple[pa.Array, dict[int, str]]:
    """Casts the column to the field's type. Returns it with the reasons of rows that do not fit.

    A row that does not fit is null in the result. `is_castable` must be true.
    """
    return cast_or_find(column, field, lambda part: cast_values(part, field.type))


def default_column(field: SchemaField, rows: int) -> pa.Array:
    """Returns a column of the field's default, or of nulls."""
    kind = arrow_type(field.type)
    if field.default is None:
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(default_value(field), kind), rows)


def parse_column(column: pa.Array, field: SchemaField) -> tuple[pa.Array, dict[int, str]]:
    """Parses a column of text. Returns it with the reasons of rows that do not fit."""
    return cast_or_find(column, field, lambda part: parse_values(part, field.type))


def cast_or_find(
    column: pa.Array, field: SchemaField, cast: Cast
) -> tuple[pa.Array, dict[int, str]]:
    """Applies `cast` to the column. Returns the result with the reasons of failed rows."""
    bad: dict[int, str] = {}
    result = _cast_by_halves(column, cast, 0, bad)
    if not field.nullable and result.null_count > len(bad):
        nulls = pc.indices_nonzero(pc.is_null(result)).to_pylist()
        for row in nulls:
            bad.setdefault(row, "null, but the field is not nullable")
    return result.cast(arrow_type(field.type)), bad


def _cast_by_halves(column: pa.Array, cast: Cast, start: int, bad: dict[int, str]) -> pa.Array:
    try:
        return cast(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnfitError) as error:
        if len(column) == 1:
            bad[start] = f"{_format_first(column)}: {str(error).splitlines()[0]}"
            return pa.nulls(1)
    half = len(column) // 2
    parts = [
        _cast_by_halves(_copy(column.slice(0, half)), cast, start, bad),
        _cast_by_halves(_copy(column.slice(half)), cast, start + half, bad),
    ]
    kinds = {p.type for p in parts if not pa.types.is_null(p.type)}
    kind = kinds.pop() if kinds else pa.null()
    return pa.concat_arrays([p.cast(kind) for p in parts])


def _copy(column: pa.Array) -> pa.Array:
    """Returns the column without values outside of its slice, which Arrow checks in lists."""
    return pa.concat_arrays([column])


class UnfitError(Exception):
    """A value of the column does not fit, for a reason that Arrow does not check."""


def cast_values(column: pa.Array, target: FieldType) -> pa.Array:
    """Casts the values. Raises UnfitError or an error of Arrow if one does not fit.

    The input is validated, because its text may not be UTF-8, and its decimals may have more
    digits than their type, which Arrow would store as other numbers.
    """
    column.validate(full=True)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = arrow_type(target)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    match target:
        case ListType() | MapType():
            result = column.cast(_nullable_inside(kind))
            _check_no_null_inside(result)
            if infinities(result) > infinities(column):
                raise UnfitError("too large for FloatType")
            return result
        case PrimitiveType.FLOAT if pa.types.is_float64(column.type):
            return _narrow_floats(column)
        case PrimitiveType.TIMESTAMP if pa.types.is_timestamp(column.type) and not column.type.tz:
            return pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC")
        case PrimitiveType.INT | PrimitiveType.LONG if pa.types.is_floating(column.type):
            if pc.any(pc.invert(pc.is_finite(column))).as_py():
                raise UnfitError("not an integer")
            return column.cast(kind)
        case DecimalType() if pa.types.is_integer(column.type):
            return column.cast(pa.decimal128(20, 0)).cast(kind)
        case _:
            return column.cast(kind)


def infinities(column: pa.Array) -> int:
    """Counts infinite floats in a column, its lists, or the values of its maps or pairs."""
    kind = column.type
    if pa.types.is_map(kind):
        start, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return infinities(column.items.slice(start, stop - start))
    if pa.types.is_struct(kind):
        return infinities(column.flatten()[1])
    if pa.types.is_nested(kind):
        return infinities(column.flatten())
    return int(pc.sum(pc.is_inf(column)).as_py() or 0) if pa.types.is_floating(kind) else 0


def parse_values(column: pa.Array, target: FieldType) -> pa.Array:
    """Parses text. Raises UnfitError or an error of Arrow if a value does not fit."""
    match target:
        case PrimitiveType.BYTE_ARRAY:
            return _decode_base64(column)
        case PrimitiveType.TIMESTAMP:
            return _parse_timestamps(column)
        case PrimitiveType.BOOLEAN:
            return _parse_booleans(column)
        case PrimitiveType.DATE:
            return parse_times(column, arrow_type(target))
        case PrimitiveType.FLOAT | PrimitiveType.DOUBLE:
            return _parse_floats(column, target)
        case PrimitiveType.INT | PrimitiveType.LONG:
            return _parse_integers(column, target)
        case DecimalType():
            return _parse_decimals(column, target)
        case ListType() | MapType():
            raise InvalidRequestError("lists and maps cannot be read from plain text")
        case _:
            return column.cast(arrow_type(target))


def _parse_timestamps(column: pa.Array) -> pa.Array:
    zoned = pc.match_substring_regex(column, r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$")
    if pc.all(zoned, skip_nulls=True).as_py():
        return parse_times(column, pa.timestamp("us", tz="UTC"))
    if pc.any(zoned, skip_nulls=True).as_py():
        raise UnfitError("times with and without a zone are mixed")
    return pc.assume_timezone(parse_times(column, pa.timestamp("us")), "UTC")


def _parse_floats(column: pa.Array, target: FieldType) -> pa.Array:
    parsed = column.cast(arrow_type(target))
    infinite = pc.is_inf(parsed)
    if pc.any(infinite).as_py():
        is_named = pc.match_substring(column.filter(infinite), "inf", ignore_case=True)
        if not pc.all(is_named).as_py():
            raise UnfitError(f"too large for {type_name(target)}")
    return parsed


def _parse_booleans(column: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(column)
    if pc.all(pc.match_substring_regex(lowered, "^(true|false)$")).as_py() is False:
        raise UnfitError("expected true or false")
    return lowered.cast(pa.bool_())


def _parse_integers(column: pa.Array, target: FieldType) -> pa.Array:
    parsed = column.cast(arrow_type(target))
    # Arrow reads 0x10 as 16.
    if pc.any(pc.match_substring(column, "x", ignore_case=True)).as_py():
        raise UnfitError("expected an integer in decimal digits")
    return parsed


def _parse_decimals(column: pa.Array, target: DecimalType) -> pa.Array:
    # Arrow rescales without a check for overflow, so the intermediate type has twice the digits.
    if pc.all(pc.match_substring_regex(column, _DECIMAL_TEXT)).as_py() is False:
        raise UnfitError(f"expected a decimal of at most {DECIMAL_DIGITS_MAX} digits")
    magnitude = pc.max(pc.abs(column.cast(pa.float64()))).as_py()
    if magnitude is not None and magnitude > 10.0**DECIMAL_DIGITS_MAX:
        raise UnfitError(f"too large for {type_name(target)}")
    wide = column.cast(pa.decimal256(2 * DECIMAL_DIGITS_MAX, target.scale))
    return wide.cast(arrow_type(target))


def _decode_base64(column: pa.Array) -> pa.Array:
    frame = SessionContext().from_arrow(pa.table({"text": column}))
    try:
        batches = frame.select(functions.decode(col("text"), "base64")).collect()
    except Exception as error:  # DataFusion raises bare exceptions
        if is_transient(error):
            raise UnavailableError(f"cannot decode base64: {error}") from error
        raise UnfitError("not base64") from error
    return pa.chunked_array([b.column(0) for b in batches], pa.binary()).combine_chunks()


def _narrow_floats(column: pa.Array) -> pa.Array:
    narrow = column.cast(pa.float32())
    overflows = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(column)))
    if pc.any(overflows).as_py():
        raise UnfitError("too large for FloatType")
    return narrow


def _check_no_null_inside(column: pa.Array) -> None:
    if pa.types.is_map(column.type):
        start, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
        if column.items.slice(start, stop - start).null_count:
            raise UnfitError("null inside a map")
    elif column.flatten().null_count:
        raise UnfitError("null inside a list")


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_type)
    return pa.list_(kind.value_type)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def python_value(value: pa.Scalar) -> Any:
    """Returns the Python value, or Arrow's text for times of far years and text not in UTF-8."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return pa.repeat(value, 1).to_string(skip_new_lines=True)


def _format_first(column: pa.Array) -> str:
    """Returns the first value of the column as text of limited length."""
    text = repr(python_value(column[0]))
    return text if len(text) <= 80 else text[:77] + "..."


_NUMBER = (pa.types.is_integer, pa.types.is_floating)
_CASTABLE_FROM: dict[PrimitiveType, tuple[Callable[[pa.DataType], bool], ...]] = {
    PrimitiveType.INT: _NUMBER,
    PrimitiveType.LONG: _NUMBER,
    PrimitiveType.FLOAT: _NUMBER,
    PrimitiveType.DOUBLE: _NUMBER,
    PrimitiveType.STRING: (_is_text,),
    PrimitiveType.BYTE_ARRAY: (_is_binary,),
    PrimitiveType.BOOLEAN: (pa.types.is_boolean,),
    PrimitiveType.TIMESTAMP: (pa.types.is_timestamp,),
    PrimitiveType.DATE: (pa.types.is_date,),
}
