"""Documents of a stash as Arrow batches with the types of the table."""

from collections.abc import Sequence

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.json_rows import NOT_ROWS, TEXT_IN_JSON, parse_lines
from sleeper.datafiles.text_values import parse_values
from sleeper.errors import DataError
from sleeper.schema.model import Schema


def parse_block(lines: Sequence[bytes], fields: Schema, where: str) -> pa.RecordBatch:
    """Returns the documents of the lines. DataError names `where` if one does not fit."""
    target = arrow_schema(fields)
    try:
        columns = parse_lines(lines, fields)
        arrays = [
            parse_values(columns[f.name], f.type) if f.type in TEXT_IN_JSON else columns[f.name]
            for f in fields.fields
        ]
        cast = [array.cast(kind.type) for array, kind in zip(arrays, target, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=target)
    except NOT_ROWS as error:
        raise DataError(f"{where} is damaged: {error}") from error
