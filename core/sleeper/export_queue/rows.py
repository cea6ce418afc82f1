"""Rows of exports as Arrow batches and as the contents of items, and their buckets."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.errors import DataError
from sleeper.export_queue.definition import GONE, SEQUENCE, ExportQueue
from sleeper.schema.model import Schema

_FIRST_COLUMNS = (
    pa.field(SEQUENCE, pa.int64(), nullable=False),
    pa.field(GONE, pa.bool_(), nullable=False),
)


def rows_schema(queue: ExportQueue) -> pa.Schema:
    """Returns the Arrow schema of a queue's rows: `sequence`, `__gone`, keys, values."""
    return _rows_schema(queue.schema)


@lru_cache(maxsize=64)
def _rows_schema(schema: Schema) -> pa.Schema:
    return pa.schema([*_FIRST_COLUMNS, *arrow_schema(schema)])


def find_buckets(queue: ExportQueue, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Returns each row's bucket: the hash of its key, unsigned, modulo the number of buckets.

    The hash is that of key filters, xxhash64 as Spark defines it, with seed 42.
    """
    return hash_rows(queue.schema, [rows]) % np.uint64(queue.buckets)


def encode_rows(rows: Sequence[pa.RecordBatch]) -> bytes:
    """Returns the content of an item: an Arrow IPC stream. Needs at least one batch."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows[0].schema, options=options) as writer:
        for batch in rows:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_rows(queue: ExportQueue, content: bytes) -> pa.RecordBatch:
    """Returns the rows of an item. DataError if it is damaged or of another schema."""
    try:
        with pa.ipc.open_stream(content) as reader:
            table = reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"export queue {queue.name!r}: damaged item: {error}") from error
    if table.schema != rows_schema(queue):
        raise DataError(
            f"export queue {queue.name!r}: an item has the columns {table.schema.names} "
            f"(expected {rows_schema(queue).names})"
        )
    combined = table.combine_chunks().to_batches()
    return combined[0] if combined else pa.RecordBatch.from_pylist([], schema=table.schema)
