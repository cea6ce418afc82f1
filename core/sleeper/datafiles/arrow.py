"""The Arrow schema of a table, and columns without the views of DataFusion."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.schema.defaults import default_value
from sleeper.schema.field_ids import element_id, value_id
from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType, Schema
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
    PrimitiveType.JSON: pa.json_(),
}

# The metadata of an Arrow field that pyarrow and DataFusion write as its Parquet field id.
FIELD_ID = "PARQUET:field_id"

JSON_MARK = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}
"""The metadata by which a column of text in the engine is one of `pa.json_()` in Arrow."""

# Validity and views. Further buffers hold values that do not fit into a view.
_BUFFERS_OF_SHORT_VIEWS = 2


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


@lru_cache(maxsize=256)
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

    The elements of a list have the name of the field, which Java clients read. Results have
    neither ids nor these names, so readers use the other schemas.
    """
    fields = [
        pa.field(f.name, _identified_type(f), f.nullable, _id_metadata(f.id)) for f in schema.fields
    ]
    return pa.schema(fields)


def _identified_type(field: SchemaField) -> pa.DataType:
    """Returns the type in data files: as in `view_schema`, with ids and names of elements."""
    match field.type:
        case ListType(element):
            metadata = _id_metadata(element_id(field.id))
            return pa.list_(pa.field(field.name, arrow_type(element), False, metadata))
        case MapType(key, value):
            metadata = _id_metadata(element_id(field.id))
            keys = pa.field("key", arrow_type(key), False, metadata)
            metadata = _id_metadata(value_id(field.id))
            return pa.map_(keys, pa.field("value", arrow_type(value), False, metadata))
        case PrimitiveType.JSON:
            return pa.json_(pa.string_view())
    return _view_type(arrow_type(field.type))


def _id_metadata(field_id: int) -> dict[str, str]:
    return {FIELD_ID: str(field_id)}


def _view_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind) or is_json(kind):
        return pa.string_view()
    return pa.binary_view() if pa.types.is_binary(kind) else kind


def is_json(kind: pa.DataType) -> bool:
    """Returns whether this is the Arrow type of a column of `JSONType`, of any layout of text."""
    return isinstance(kind, pa.JsonType)


def with_text(kinds: pa.Schema) -> pa.Schema:
    """Returns the schema with text in place of JSON, for readers that do not know its type."""
    return pa.schema([f.with_type(pa.string()) if is_json(f.type) else f for f in kinds])


def as_json(column: pa.Array) -> pa.Array:
    """Returns a column of text, which is JSON, as one of `JSONType`."""
    return pa.ExtensionArray.from_storage(pa.json_(), column.cast(pa.string()))


def json_storage(column: pa.Array) -> pa.Array:
    """Returns the text of a column of `JSONType`."""
    return column.storage.cast(pa.string())


def cast_text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the column with another layout of its text, if it is text or JSON."""
    if is_json(column.type) and column.type != kind:
        column = column.storage
    return column.cast(kind)


def as_plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns the column without views, for kernels that do not support them."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


def decode_dictionary(column: pa.Array) -> pa.Array:
    """Returns the column without dictionaries, which a Categorical of Polars has, also in lists."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        # Arrow cannot take values of a dictionary of views.
        values = as_plain(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_dictionary(
        kind.value_type
    ):
        # A copy, because lists cannot be made of a slice and its nulls.
        whole = pa.concat_arrays([column])
        values = decode_dictionary(whole.values)
        return type(whole).from_arrays(whole.offsets, values, mask=whole.is_null())
    return column


_VIEW_WORDS = 2


def take_plain(
    column: pa.Array | pa.ChunkedArray, places: npt.NDArray[np.integer[Any]]
) -> pa.Array:
    """Returns the values at the places, without views.

    Arrow has no take kernel for views, and a copy of the whole column takes 50 times as long.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not is_view(whole.type):
        return whole.take(pa.array(places))
    _, views, *values = whole.buffers()
    words = np.frombuffer(views, np.uint64).reshape(-1, _VIEW_WORDS)[whole.offset :]
    valid = None
    if whole.null_count:
        is_valid = pc.is_valid(whole).to_numpy(zero_copy_only=False)
        valid = pa.array(is_valid[places]).buffers()[1]
    buffers = [valid, pa.py_buffer(words[places]), *values]
    return as_plain(pa.Array.from_buffers(whole.type, len(places), buffers))


def is_view(kind: pa.DataType) -> bool:
    """Whether this is text or bytes as views."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def has_short_views(column: pa.Array) -> bool:
    """Whether the column is text or bytes as views that contain all of their values."""
    return is_view(column.type) and len(column.buffers()) <= _BUFFERS_OF_SHORT_VIEWS


# A view begins with the length of its value in 4 bytes.
_SHORT_BYTES_MAX = 12
_LENGTHS_PER_VIEW = 4
# Other memory that a column may refer to, for each byte of its values.
_LIGHT_SHARE = 2


def view_lengths(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Returns the bytes of each value of a column of views, 0 of nulls."""
    every = np.frombuffer(column.buffers()[1], np.uint32)[::_LENGTHS_PER_VIEW]
    lengths: npt.NDArray[np.uint32] = every[column.offset : column.offset + len(column)]
    if column.null_count:
        lengths = lengths * pc.is_valid(column).to_numpy(zero_copy_only=False)
    return lengths


def without_pages(column: pa.Array) -> pa.Array:
    """Returns a column of views without references to other memory, such as a page of a file.

    It has short views if all values are short. Otherwise it has no views.
    """
    if not is_view(column.type) or has_short_views(column):
        return column
    if view_lengths(column).max(initial=0) > _SHORT_BYTES_MAX:
        return as_plain(column)
    buffers = column.buffers()[:_BUFFERS_OF_SHORT_VIEWS]
    return pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)


def as_light_views(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Returns the batch in the table's `view_schema`, without references to much other memory.

    Views of long values may keep whole pages alive, so such columns are copied. Values of up to
    12 bytes are stored in the views themselves.
    """
    columns = [
        (column if _is_light(column) else without_pages(column)).cast(field.type)
        for column, field in zip(batch.columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _is_light(column: pa.Array) -> bool:
    """Whether the column is of views that refer to little more than their values."""
    if not is_view(column.type) or column.null_count:
        return False
    size = sum(len(buffer) for buffer in column.buffers()[_BUFFERS_OF_SHORT_VIEWS:])
    lengths = view_lengths(column)
    long = lengths[lengths > _SHORT_BYTES_MAX]
    return size <= _LIGHT_SHARE * int(long.sum(dtype=np.int64))


def default_column(field: SchemaField, rows: int) -> pa.Array:
    """Returns a column of the field's default, or of nulls."""
    kind = arrow_type(field.type)
    if field.default is None:
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(default_value(field), kind), rows)


def python_value(value: pa.Scalar) -> Any:
    """Returns the Python value, or Arrow's text for times of far years and text not in UTF-8."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return pa.repeat(value, 1).to_string(skip_new_lines=True)
