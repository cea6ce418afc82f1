"""Streams of every interface, while all files are compacted and collected between their batches."""

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

import sleeper
from sleeper.bulk_export.service import export_table
from sleeper.duckdb import register_tables
from sleeper.garbage_collection.service import collect_table
from sleeper.polars import scan_sleeper
from sleeper.query import run
from sleeper.query.changes.reader import ChangeReader
from sleeper.query.distributed.read import plan_table_read, read_table_part
from sleeper.query.request import Query
from sleeper.query.result import QueryResult
from sleeper.spark.data_source import SleeperDataSource
from sleeper.stash.run import run_stash
from tests.tables.opened import KEY_AND_VALUE, compact
from tests.unit.serve.client import post, request

ROWS = 17_000
"""Several batches, in one leaf."""
PROPERTIES = {
    "sleeper.table.gc.delay.minutes": "0",
    # The engine reads one row group after another, each from the file that it opens then.
    "sleeper.table.parquet.rowgroup.rows.max": "1000",
}


class Disturbance:
    """Replaces all files of the table, and collects them if nothing keeps them."""

    def __init__(self, instance: sleeper.Instance) -> None:
        self._instance = instance
        self._table = instance.table("rows")
        self._is_running = False
        self.count = 0

    def __call__(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        self.count += 1
        self._table.ingest(pa.table({"key": [ROWS + self.count], "value": ["later"]}))
        compact(self._instance)
        collect_table(self._instance._ports, "rows")
        self._is_running = False

    def after_each(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            self()


Read = Callable[[sleeper.Instance, Path], list[int]]


def read_python(instance: sleeper.Instance, _: Path) -> list[int]:
    with instance.table("rows").query() as rows:
        return list(itertools.chain.from_iterable(batch["key"].to_pylist() for batch in rows))


def read_reader(instance: sleeper.Instance, _: Path) -> list[int]:
    with instance.table("rows").reader() as reader:
        return keys_of(reader.query().to_reader().read_all())


def read_sql(instance: sleeper.Instance, _: Path) -> list[int]:
    return keys_of(instance.sql("SELECT key, value FROM rows").to_arrow())


def read_polars(instance: sleeper.Instance, _: Path) -> list[int]:
    return keys_of(scan_sleeper(instance, "rows").collect().to_arrow())


def read_duckdb(instance: sleeper.Instance, _: Path) -> list[int]:
    with duckdb.connect() as connection:
        register_tables(connection, instance)
        return [key for (key,) in connection.execute("SELECT key FROM rows").fetchall()]


def read_http(instance: sleeper.Instance, _: Path) -> list[int]:
    response = post(instance._ports, "/tables/rows/query", {})
    return [json.loads(line)["key"] for line in response.text.splitlines()]


def read_http_sql(instance: sleeper.Instance, _: Path) -> list[int]:
    response = post(instance._ports, "/sql", {"statement": "SELECT key FROM rows"})
    return [json.loads(line)["key"] for line in response.text.splitlines()]


def read_changes(instance: sleeper.Instance, _: Path) -> list[int]:
    return [key for change in instance.table("rows").changes() for key in keys_of(change.rows)]


def read_http_changes(instance: sleeper.Instance, _: Path) -> list[int]:
    response = request(instance._ports, "GET", "/tables/rows/changes")
    return [json.loads(line)["row"]["key"] for line in response.text.splitlines()]


def read_parts(instance: sleeper.Instance, _: Path) -> list[int]:
    table = instance._ports.table("rows")
    read, parts = plan_table_read(table, Query(), "tests", 2**30)
    batches = (batch for part in parts for batch in read_table_part(instance._ports, read, part))
    return list(itertools.chain.from_iterable(batch["key"].to_pylist() for batch in batches))


def read_spark_stream(instance: sleeper.Instance, _: Path) -> list[int]:
    return list(itertools.chain.from_iterable(each["key"].to_pylist() for each in stream(instance)))


def stream(instance: sleeper.Instance) -> Iterator[pa.RecordBatch]:
    """Yields the rows of micro-batches, as Spark reads them."""
    options = {"instance": instance._ports.where, "table": "rows"}
    source = SleeperDataSource(CaseInsensitiveDict(options))
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    for partition in reader.partitions(start, end):
        yield from reader.read(partition)
    reader.stop()


def read_stash(instance: sleeper.Instance, folder: Path) -> list[int]:
    run_stash(instance._ports, str(folder / "stash"), ["rows"])
    (file,) = (folder / "stash").rglob("*.gz")
    return [json.loads(line)["key"] for line in gzip.decompress(file.read_bytes()).splitlines()]


def read_bulk_export(instance: sleeper.Instance, folder: Path) -> list[int]:
    export_table(instance._ports, "rows", folder / "export")
    (file,) = (folder / "export").rglob("*.parquet")
    return keys_of(pq.read_table(file))


def read_export_queue(instance: sleeper.Instance, _: Path) -> list[int]:
    queue = instance.create_export_queue(
        "out", "rows", on="ingest", keys="key", values="value", existing_rows=True
    )
    queue.pause()
    queue.drain()
    exports = pa.Table.from_batches([each.rows for each in queue.peek(2 * ROWS)])
    return keys_of(exports.filter(pc.field("key") < ROWS))


READS = [
    read_python,
    read_reader,
    read_sql,
    read_polars,
    read_duckdb,
    read_http,
    read_http_sql,
    read_changes,
    read_http_changes,
    read_parts,
    read_spark_stream,
    read_stash,
    read_bulk_export,
    read_export_queue,
]


def keys_of(rows: pa.Table | pa.RecordBatch) -> list[int]:
    keys: list[int] = rows.column("key").to_pylist()
    return keys


@pytest.fixture
def disturbance(instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch) -> Disturbance:
    """Disturbs after each batch of a query, of a change feed, and of a read under a hold."""
    table = instance.create_table("rows", KEY_AND_VALUE, PROPERTIES)
    table.ingest(pa.table({"key": range(ROWS), "value": [str(n) for n in range(ROWS)]}))
    disturbance = Disturbance(instance)
    # Files of this size would be read into memory.
    monkeypatch.setattr(run, "_fill", lambda *_: None)
    next_batch, changes = QueryResult.__next__, ChangeReader.__iter__

    def next_and_disturb(result: QueryResult) -> pa.RecordBatch:
        if result._rows:
            disturbance()
        return next_batch(result)

    monkeypatch.setattr(QueryResult, "__next__", next_and_disturb)
    monkeypatch.setattr(
        ChangeReader, "__iter__", lambda reader: disturbance.after_each(changes(reader))
    )
    return disturbance


@pytest.mark.slow
@pytest.mark.parametrize("read", READS, ids=lambda read: read.__name__.removeprefix("read_"))
def test_a_stream_has_the_rows_of_its_version_whatever_is_collected_meanwhile(
    instance: sleeper.Instance,
    disturbance: Disturbance,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    read: Read,
) -> None:
    if read in (read_parts, read_spark_stream, read_stash, read_export_queue):
        # They hold the version before they read, and hand out the batches of leaves.
        read_leaf = run._read_leaf
        monkeypatch.setattr(
            run, "_read_leaf", lambda *each: disturbance.after_each(read_leaf(*each))
        )
    assert sorted(read(instance, tmp_path)) == list(range(ROWS))
    assert disturbance.count >= 2
