"""Documents of a stash as Arrow batches with the types of the table."""

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.json_rows import NOT_ROWS, parse_block
from sleeper.datafiles.text_values import TEXT_IN_JSON, parse_values
from sleeper.errors import DataError
from sleeper.schema.model import FieldType, Schema

# Of values that repeat, such as the times of a transaction, each is parsed once.
_REPEATED_MIN = 4


def parse_documents(block: bytes, fields: Schema, where: str) -> pa.RecordBatch:
    """Returns the documents of a block of lines. DataError names `where` if one does not fit."""
    target = arrow_schema(fields)
    try:
        columns = parse_block(block, fields)
        if not columns:
            return pa.RecordBatch.from_pylist([], target)
        arrays = [
            _parse_text(columns[f.name], f.type) if f.type in TEXT_IN_JSON else columns[f.name]
            for f in fields.fields
        ]
        cast = [array.cast(kind.type) for array, kind in zip(arrays, target, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=target)
    except NOT_ROWS as error:
        raise DataError(f"{where} is damaged: {error}") from error


def _parse_text(column: pa.Array, kind: FieldType) -> pa.Array:
    if not pa.types.is_string(column.type):
        return column
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) * _REPEATED_MIN > len(column):
        return parse_values(column, kind)
    return parse_values(encoded.dictionary, kind).take(encoded.indices)
