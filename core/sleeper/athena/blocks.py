"""Arrow schemas and rows as the protocol carries them.

Either is one encapsulated IPC message: a length, metadata, and rows' buffers. In JSON it is
in base64, and a *block* is `{"aId", "schema", "records"}`, where no rows are an empty text.
Serialisation version 3 and later write today's IPC format there (a marker before the length,
metadata V5), version 2 the one before (metadata V4); both are read. A spilled block is a
message without its schema, always of the format before (RecordBatchSerDe).
"""

import base64
import binascii
import uuid
from typing import Any

import pyarrow as pa

from sleeper.athena.members import member
from sleeper.errors import InvalidRequestError, failure_of

_END_OF_OLD_STREAM_BYTES = 4
_LENGTH_BYTES = 4
_OLD_FORMAT = pa.ipc.IpcWriteOptions(
    metadata_version=pa.ipc.MetadataVersion.V4, use_legacy_format=True
)


def schema_to_text(schema: pa.Schema) -> str:
    """The schema as a message in base64."""
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: Any, what: str) -> pa.Schema:
    """InvalidRequestError names what it is of if it is no schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(_decoded(text, what)))
    except (pa.ArrowException, OSError) as error:
        raise failure_of(
            error, f"{what} is no Arrow schema: {error}", InvalidRequestError
        ) from error


def block_to_json(batch: pa.RecordBatch) -> dict[str, Any]:
    """The rows as a block, under an allocator's id that means nothing."""
    records = base64.b64encode(batch.serialize()).decode() if batch.num_rows else ""
    return {
        "aId": str(uuid.uuid4()),
        "schema": schema_to_text(batch.schema),
        "records": records,
    }


def block_from_json(raw: Any, what: str) -> pa.RecordBatch:
    """The rows of a block; InvalidRequestError names what it is of if they cannot be read."""
    schema = schema_from_text(member(raw, "schema", str, what), f"the schema of {what}")
    records = _decoded(member(raw, "records", str, what), what)
    if not records:
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(records), schema)
    except (pa.ArrowException, OSError) as error:
        raise failure_of(
            error, f"{what} holds no Arrow rows: {error}", InvalidRequestError
        ) from error


def spilled_bytes(batch: pa.RecordBatch) -> bytes:
    """The rows as a spilled block has them, before encryption."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OLD_FORMAT) as stream:
        stream.write_batch(batch)
    written = sink.getvalue()
    # A stream is the schema's message, which has no buffers, then the rows', then a zero.
    start = _LENGTH_BYTES + int.from_bytes(written[:_LENGTH_BYTES], "little")
    return bytes(written[start : len(written) - _END_OF_OLD_STREAM_BYTES])


def _decoded(text: Any, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise InvalidRequestError(f"{what} is not base64: {error}") from error
