"""Rows that are mappings, as Arrow batches."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from sleeper.datafiles.arrow import is_json
from sleeper.datafiles.json_python import write_json
from sleeper.errors import InvalidRequestError

_ROWS_PER_BATCH = 10_000


def read_records(
    records: Iterable[Any], schema: pa.Schema, other_column: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields batches of mappings from names of fields to values.

    A field that a mapping lacks is null in its row. The batches have all nullable fields, and the
    others that a mapping has. `other_column` is the name of a column beside
    the fields. Raises `InvalidRequestError` with the row, which counts from 1, and the field of a
    value that no type fits, and for a member that is no field.
    """
    rows, first = iter(records), 1
    while chunk := list(islice(rows, _ROWS_PER_BATCH)):
        names = _find_names(chunk, first, schema, other_column)
        columns = {name: _make_column(chunk, first, name, schema) for name in names}
        yield pa.RecordBatch.from_pydict(columns)
        first += len(chunk)


def _find_names(
    chunk: list[Any], first: int, schema: pa.Schema, other_column: str | None
) -> list[str]:
    names = {*schema.names, other_column}
    result: dict[str, None] = {}
    for number, record in enumerate(chunk, first):
        if not isinstance(record, Mapping):
            raise InvalidRequestError(
                f"row {number:,} is {type(record).__name__} {record!r:.100} (expected a mapping of "
                "fields to values, as the first row)"
            )
        for name in record:
            if name not in names:
                raise InvalidRequestError(
                    f"row {number:,}: the table has no field {name!r:.100} (expected "
                    f"{', '.join(schema.names)})"
                )
            result[name] = None
    return list(result | dict.fromkeys(field.name for field in schema if field.nullable))


def _make_column(chunk: list[Mapping[str, Any]], first: int, name: str, schema: pa.Schema) -> Any:
    position = schema.get_field_index(name)
    kind = None if position < 0 else schema.field(position).type
    if kind is not None and is_json(kind):
        return _make_json_column(chunk, first, name)
    values = [record.get(name) for record in chunk]
    result = _convert(values, kind)
    if result is not None:
        return result
    for number, value in enumerate(values, first):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidRequestError(
                f"row {number:,}: field {name!r}: {type(value).__name__} {value!r:.100} (expected "
                f"{kind})"
            ) from error
    raise InvalidRequestError(
        f"rows {first:,} to {first + len(values) - 1:,}: field {name!r} has values of several types"
    )


def _make_json_column(chunk: list[Mapping[str, Any]], first: int, name: str) -> pa.Array:
    """Returns the values as JSON. A missing one is null, while `None` is the null of JSON."""
    texts = []
    for number, record in enumerate(chunk, first):
        try:
            text = write_json(record[name]) if name in record else None
            texts.append(None if text is None else text.encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequestError(f"row {number:,}: field {name!r}: {error}") from error
    return pa.array(texts, pa.binary()).cast(pa.string())


def _convert(values: list[Any], kind: pa.DataType | None) -> pa.Array | None:
    """Returns the values as a column, which the ingest casts; None if they do not fit.

    A conversion to the field's type would drop fractions and times of day. Only maps need it.
    """
    is_map = kind is not None and pa.types.is_map(kind)
    try:
        result = pa.array(values, kind if is_map else None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if kind is None or result.type == kind:
        is_same = not is_map or all(map(_is_same_map, result.to_pylist(), values))
        return result if is_same else None
    if pa.types.is_null(result.type):
        return result.cast(kind)
    return None if pa.types.is_string(result.type) else result


def _is_same_map(result: Any, value: Any) -> bool:
    if result is None or value is None:
        return result is value
    return dict(result) == dict(value)
