"""Rows of databases as rows of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema, default_column, python_value
from sleeper.datafiles.casts import cast_column, cast_key_column
from sleeper.datafiles.text_values import parse_column
from sleeper.datafiles.validity import DamagedArrayError, check_array
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, PrimitiveType, Schema, type_name

_VALUE_CHARACTERS_MAX = 80


def fit_rows(columns: Mapping[str, pa.Array], schema: Schema, where: str) -> pa.RecordBatch:
    """Returns the columns as a batch of the table's Arrow schema, at least one of them given.

    Text is parsed, other values are cast without a change. A field without a column has its
    default. InvalidRequestError names table, key, field and value of a row that does not fit.
    """
    rows = len(next(iter(columns.values())))
    arrays: list[pa.Array] = []
    faults: list[tuple[int, Field, str]] = []
    for field in schema.fields:
        if field.name not in columns:
            arrays.append(default_column(field, rows))
            continue
        column = columns[field.name]
        cast = cast_key_column if field in schema.keys else cast_column
        convert = parse_column if _is_parsed(column, field) else cast
        try:
            check_array(column)
        except DamagedArrayError as error:
            raise InvalidRequestError(f"{where}: field {field.name!r}: {error}") from error
        array, bad = convert(column, field)
        arrays.append(array)
        if bad:
            row = min(bad)
            faults.append((row, field, bad[row]))
    if faults:
        row, field, reason = min(faults, key=lambda fault: fault[0])
        raise InvalidRequestError(
            f"{where}: row with {_describe_key(columns, schema.row_keys, row)}: field "
            f"{field.name!r} ({type_name(field.type)}): {reason}"
        )
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def _is_parsed(column: pa.Array, field: Field) -> bool:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return is_text and field.type is not PrimitiveType.STRING


def _describe_key(columns: Mapping[str, pa.Array], keys: Sequence[Field], row: int) -> str:
    return ", ".join(
        f"{key.name} {_format(python_value(columns[key.name][row]))}"
        for key in keys
        if key.name in columns
    )


def _format(value: Any) -> str:
    text = repr(value)
    if len(text) <= _VALUE_CHARACTERS_MAX:
        return text
    return text[: _VALUE_CHARACTERS_MAX - 3] + "..."
