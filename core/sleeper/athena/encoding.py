"""Members of the protocol's JSON objects: checked values, Arrow schemas and blocks of rows.

Schemas and rows are encapsulated IPC messages in base64: a length, metadata, and buffers. A
*block* is `{"aId", "schema", "records"}`; `records` is empty text if there are no rows.
Serialisation version 3 and later use the current IPC format (a marker before the length,
metadata V5), version 2 the format before (metadata V4); both can be read. A spilled block is a
message without its schema, always in the format before (RecordBatchSerDe).
"""

import base64
import binascii
import uuid
from typing import Any, TypeVar

import pyarrow as pa

from sleeper.errors import InvalidRequestError, classify_error

T = TypeVar("T")

DATE_MILLI = pa.date64()
MILLISECONDS = pa.timestamp("ms")
"""The type of `DATE_MILLI` values in parsed blocks: Arrow expects whole days of a date64."""

_END_OF_OLD_STREAM_BYTES = 4
_LENGTH_BYTES = 4
_OLD_FORMAT = pa.ipc.IpcWriteOptions(
    metadata_version=pa.ipc.MetadataVersion.V4, use_legacy_format=True
)


def member(raw: Any, name: str, kind: type[T], what: str) -> T:
    """Returns the member. InvalidRequestError, naming the object, if it is of another type."""
    value = raw.get(name) if isinstance(raw, dict) else None
    if isinstance(value, kind):
        return value
    shown = "nothing" if value is None else repr(value)[:100]
    raise InvalidRequestError(f"{what}: member {name!r} is {shown} (expected {kind.__name__})")


def number_member(raw: Any, name: str, what: str) -> int:
    """Returns an integer, which the protocol writes as a number or as text (Java's longs)."""
    value = raw.get(name) if isinstance(raw, dict) else None
    try:
        if isinstance(value, int | str) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise InvalidRequestError(f"{what}: member {name!r} is {value!r} (expected an integer)")


def optional_text(raw: Any, name: str, what: str) -> str | None:
    """Returns a text; None if it is missing or null."""
    return None if raw.get(name) is None else member(raw, name, str, what)


def schema_to_text(schema: pa.Schema) -> str:
    """Returns the schema as a message in base64."""
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: Any, what: str) -> pa.Schema:
    """Parses a schema. InvalidRequestError, naming its place, if the text is none."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(_decode(text, what)))
    except (pa.ArrowException, OSError) as error:
        raise classify_error(
            error, f"{what} is not an Arrow schema: {error}", InvalidRequestError
        ) from error


def block_to_json(batch: pa.RecordBatch) -> dict[str, Any]:
    """Returns the rows as a block. Its allocator's id has no meaning."""
    records = base64.b64encode(batch.serialize()).decode() if batch.num_rows else ""
    return {
        "aId": str(uuid.uuid4()),
        "schema": schema_to_text(batch.schema),
        "records": records,
    }


def block_from_json(raw: Any, what: str) -> pa.RecordBatch:
    """Parses the rows of a block. InvalidRequestError, naming its place, if it is invalid.

    The values are valid: text is UTF-8, for example. `DATE_MILLI` becomes `MILLISECONDS`.
    """
    schema = schema_from_text(member(raw, "schema", str, what), f"the schema of {what}")
    records = _decode(member(raw, "records", str, what), what)
    if not records:
        return empty_batch(schema)
    try:
        rows = _with_milliseconds(pa.ipc.read_record_batch(pa.py_buffer(records), schema))
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise classify_error(
            error, f"{what} has no Arrow rows: {error}", InvalidRequestError
        ) from error
    return rows


def _with_milliseconds(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [c.view(MILLISECONDS) if c.type == DATE_MILLI else c for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def spilled_bytes(batch: pa.RecordBatch) -> bytes:
    """Returns the content of a spilled block of the rows, before encryption."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OLD_FORMAT) as stream:
        stream.write_batch(batch)
    written = sink.getvalue()
    # A stream is the schema's message, which has no buffers, then the rows', then a zero.
    start = _LENGTH_BYTES + int.from_bytes(written[:_LENGTH_BYTES], "little")
    return bytes(written[start : len(written) - _END_OF_OLD_STREAM_BYTES])


def _decode(text: Any, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise InvalidRequestError(f"{what} is not base64: {error}") from error
