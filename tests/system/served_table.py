"""An instance with a table of numbers, for servers: row `i` is `{"id": i, "name": "row <i>"}`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance

SCHEMA = (
    '{"rowKeyFields":[{"name":"id","type":"LongType"}],'
    '"valueFields":[{"name":"name","type":"StringType","nullable":true}]}'
)
_BATCH_ROWS = 100_000
WIDE_ROWS = 40_000
_WIDE_CHARACTERS = 2_000
_MEMORY = {"sleeper.query.memory.bytes": "256M"}


@contextmanager
def instance_with_rows(folder: Path, rows: int) -> Iterator[Instance]:
    """Table `numbers` of so many rows over four leaves, tables `empty` and `wide`.

    `wide` is more than sockets keep of an answer that nobody reads.
    """
    create_local_instance(folder, "served", _MEMORY)
    instance = open_local_instance(folder)
    try:
        splits = [rows // 4, rows // 2, rows * 3 // 4]
        create_table(instance, "numbers", SCHEMA, {}, splits)
        create_table(instance, "empty", SCHEMA, {}, [])
        create_table(instance, "wide", SCHEMA, {}, [])
        ingest_rows(instance, "numbers", _batches(rows), None)
        ingest_rows(instance, "wide", _wide_batches(), None)
        yield instance
    finally:
        instance.close()


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, _BATCH_ROWS):
        ids = pa.array(range(start, min(start + _BATCH_ROWS, rows)), pa.int64())
        names = pa.array([f"row {i}" for i in ids.to_pylist()])
        yield pa.RecordBatch.from_arrays([ids, names], ["id", "name"])


def _wide_batches() -> Iterator[pa.RecordBatch]:
    for start in range(0, WIDE_ROWS, 1000):
        ids = pa.array(range(start, start + 1000), pa.int64())
        names = pa.array(["w" * _WIDE_CHARACTERS] * 1000)
        yield pa.RecordBatch.from_arrays([ids, names], ["id", "name"])
