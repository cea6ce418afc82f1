"""Documents of a stash as Arrow batches with the types of the table."""

import io

import arro3.io
import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.json_rows import NOT_ROWS, TEXT_IN_JSON, parse_block
from sleeper.datafiles.text_values import parse_values
from sleeper.errors import DataError
from sleeper.schema.model import FieldType, ListType, MapType, PrimitiveType, Schema


def parse_documents(block: bytes, fields: Schema, where: str) -> pa.RecordBatch:
    """Returns the documents of a block of lines. DataError names `where` if one does not fit."""
    target = arrow_schema(fields)
    try:
        if not any(_has_bytes_inside(f.type) for f in fields.fields):
            rows = _parse(block, fields, target)
            if rows is not None:
                return rows
        return _parse_strictly(block, fields, target)
    except NOT_ROWS as error:
        raise DataError(f"{where} is damaged: {error}") from error


def _parse(block: bytes, fields: Schema, target: pa.Schema) -> pa.RecordBatch | None:
    """Returns the documents; None if one does not fit, for an error that says which."""
    read = target
    for place, field in enumerate(fields.fields):
        if field.type is PrimitiveType.BYTE_ARRAY:
            read = read.set(place, pa.field(field.name, pa.string()))
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    try:
        parsed = arro3.io.read_json(io.BytesIO(block), read, batch_size=lines)
        batches = [pa.record_batch(batch) for batch in parsed]
    except Exception:  # the library raises nothing more specific
        return None
    if sum(batch.num_rows for batch in batches) != lines or len(batches) != 1:
        return None
    columns = [
        parse_values(column, field.type).cast(kind.type)
        if field.type is PrimitiveType.BYTE_ARRAY
        else column
        for column, field, kind in zip(batches[0].columns, fields.fields, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _parse_strictly(block: bytes, fields: Schema, target: pa.Schema) -> pa.RecordBatch:
    columns = parse_block(block, fields)
    if not columns:
        return pa.RecordBatch.from_pylist([], target)
    arrays = [
        parse_values(columns[f.name], f.type)
        if f.type in TEXT_IN_JSON and pa.types.is_string(columns[f.name].type)
        else columns[f.name]
        for f in fields.fields
    ]
    cast = [array.cast(kind.type) for array, kind in zip(arrays, target, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=target)


def _has_bytes_inside(kind: FieldType) -> bool:
    """Returns whether bytes, which are base64 text in documents, are in a list or map."""
    match kind:
        case ListType(element):
            return element is PrimitiveType.BYTE_ARRAY
        case MapType(key, value):
            return PrimitiveType.BYTE_ARRAY in (key, value)
        case _:
            return False
