"""Hashes of the row keys of whole batches, by the engine. They equal those of `hash_keys`."""

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from datafusion.expr import Expr

from sleeper.datafiles.engine.session import new_table_name
from sleeper.datafiles.sidecars.key_filter import Hashes
from sleeper.schema.model import Schema


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
