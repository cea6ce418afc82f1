"""Hashes of the row keys of whole batches. They equal those of `hash_keys`."""

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from datafusion.expr import Expr

from sleeper.datafiles.engine.session import new_table_name
from sleeper.datafiles.key_values import key_values
from sleeper.datafiles.sidecars.key_filter import Hashes, hash_keys
from sleeper.schema.model import Schema

# A plan of the engine takes as long as this many rows in Python.
_ENGINE_ROWS_MIN = 500


class _ThreadSession(threading.local):
    """One session per thread, because concurrent registrations in a session conflict."""

    def __init__(self) -> None:
        self.session = SessionContext(SessionConfig().with_target_partitions(1))
        self.session.enable_spark_functions()


_of_thread = _ThreadSession()


def hash_expression(columns: Sequence[Expr]) -> Expr:
    """Returns the hash of each row's key as an expression, signed with the same bits."""
    return _of_thread.session.udf("xxhash64")(*columns)


def hash_rows(schema: Schema, batches: Iterable[pa.RecordBatch]) -> Hashes:
    """Returns the hash of each row's key, in order. The batches have the table's types."""
    filled = [batch for batch in batches if batch.num_rows]
    if sum(batch.num_rows for batch in filled) < _ENGINE_ROWS_MIN:
        return hash_few(schema, filled)
    return hash_by_engine(schema, filled)


def hash_few(schema: Schema, batches: Sequence[pa.RecordBatch]) -> Hashes:
    """Returns the hashes without a plan of the engine."""
    keys = [
        key
        for batch in batches
        for key in zip(*(key_values(batch.column(f.name)) for f in schema.row_keys), strict=True)
    ]
    return hash_keys(schema, keys)


def hash_by_engine(schema: Schema, batches: Sequence[pa.RecordBatch]) -> Hashes:
    """Returns the hashes of at least one row."""
    names = [f"key{position}" for position in range(len(schema.row_keys))]
    keys = [
        pa.RecordBatch.from_arrays([batch.column(f.name) for f in schema.row_keys], names)
        for batch in batches
    ]
    session, table = _of_thread.session, new_table_name()
    session.register_record_batches(table, [keys])
    try:
        frame = session.sql(f"SELECT xxhash64({', '.join(names)}) AS hash FROM {table}")
        parts = [each.column(0).to_numpy() for each in frame.collect()]
    finally:
        session.deregister_table(table)
    return np.concatenate(parts).view(np.uint64)
