"""The hash of a whole row key, by which key filters know it.

xxhash64 as Spark defines it: seed 42, the fields one after another with each hash as the
seed of the next; text over its UTF-8 bytes, numbers over their 4 or 8 little-endian bytes.
So what is hashed here in columns, by the engine, equals what is hashed key by key.
Hashes are unsigned.
"""

import struct
import threading
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from datafusion import SessionConfig, SessionContext
from datafusion.expr import Expr

from sleeper.datafiles.engine.session import new_table_name
from sleeper.schema.model import Field, Key, KeyValue, PrimitiveType, Schema

HASH_NAME = "spark-xxhash64"
Hashes = npt.NDArray[np.uint64]

_SEED = 42


class _ThreadSession(threading.local):
    """A session of each thread that hashes: registering with one is not for several."""

    def __init__(self) -> None:
        self.session = SessionContext(SessionConfig().with_target_partitions(1))
        self.session.enable_spark_functions()


_of_thread = _ThreadSession()


def hash_of_key(schema: Schema, key: Key) -> int:
    """The hash of one key. UnicodeEncodeError for a text that UTF-8 cannot hold."""
    seed = _SEED
    for field, value in zip(schema.row_keys, key, strict=True):
        seed = xxhash.xxh64_intdigest(_bytes(field, value), seed)
    return seed


def hashes_of_keys(schema: Schema, keys: Sequence[Key]) -> Hashes:
    """The hashes of some keys, in their order."""
    return np.fromiter((hash_of_key(schema, key) for key in keys), np.uint64, len(keys))


def hash_expression(columns: Sequence[Expr]) -> Expr:
    """The hash of each row's key in a plan, as signed numbers of the same bits."""
    return _of_thread.session.udf("xxhash64")(*columns)


def hashes_of_rows(schema: Schema, batches: Iterable[pa.RecordBatch]) -> Hashes:
    """The hash of each row's key, in their order. The batches have the table's types."""
    names = [f"key{place}" for place in range(len(schema.row_keys))]
    keys = [
        pa.RecordBatch.from_arrays([batch.column(f.name) for f in schema.row_keys], names)
        for batch in batches
        if batch.num_rows
    ]
    if not keys:
        return np.empty(0, np.uint64)
    session, table = _of_thread.session, new_table_name()
    session.register_record_batches(table, [keys])
    try:
        frame = session.sql(f"SELECT xxhash64({', '.join(names)}) AS hash FROM {table}")
        parts = [each.column(0).to_numpy() for each in frame.collect()]
    finally:
        session.deregister_table(table)
    return np.concatenate(parts).view(np.uint64)


def _bytes(field: Field, value: KeyValue) -> bytes:
    if isinstance(value, int):
        return struct.pack("<i" if field.type is PrimitiveType.INT else "<q", value)
    return value.encode() if isinstance(value, str) else value
