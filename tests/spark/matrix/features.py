"""The features, in the order of the matrix. They import nothing but the package and PySpark."""

import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import sleeper
import sleeper.spark
from sleeper.adapters.definition import Adapter, DatabaseSource, Engine, TableSink
from sleeper.adapters.run import run_adapter
from sleeper.adapters.spark.database_load import local_databases
from sleeper.adapters.store import AdapterStore
from sleeper.bulk_export.service import export_table
from sleeper.databases.url import split_user
from sleeper.opening import open_instance
from sleeper.spark.bulk_import_job import import_on
from sleeper.spark.session import start_session
from sleeper.spark.settings import SparkSettings
from sleeper.stash import Stash
from sleeper.stash.finish import complete_stash
from sleeper.stash.planning import plan_stash
from sleeper.stash.record import StashRequest
from sleeper.stash.run import run_stash
from sleeper.stash.spark.job import write_table
from sleeper.stash.start import start_stash

SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [
        {"name": "text", "type": "StringType", "nullable": True},
        {"name": "taken", "type": "TimestampType"},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
    ],
}
ORDERS: dict[str, Any] = {
    "rowKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [{"name": "text", "type": "StringType", "nullable": True}],
}
_COLUMNS = ("n", "text", "unix_micros(taken) AS taken", "array_join(tags, ' ') AS tags")
_SPLIT_POINTS = [40, 80]
_DATABASE_VARIABLE = "MATRIX_DATABASE"
_SECOND = 1_000_000

Row = tuple[Any, ...]


@dataclass(frozen=True)
class World:
    """A session, an instance, and a folder for files."""

    spark: SparkSession
    instance: sleeper.Instance
    folder: Path

    @property
    def where(self) -> str:
        return self.instance._ports.where

    def table(self, name: str, numbers: Iterable[int] = ()) -> sleeper.Table:
        """Creates a table of three leaves with the rows of the numbers."""
        made = self.instance.create_table(name, SCHEMA, split_points=_SPLIT_POINTS)
        values = list(numbers)
        if values:
            made.ingest(arrow_rows(values))
        return made

    def options(self, table: str, **more: str) -> dict[str, str]:
        return {"instance": self.where, "table": table, **more}

    def load(self, table: str, **more: str) -> DataFrame:
        """Returns the table as a DataFrame of the format `sleeper`."""
        sleeper.spark.register(self.spark)
        return self.spark.read.format("sleeper").options(**self.options(table, **more)).load()

    def frame(self, numbers: range) -> DataFrame:
        """Returns a DataFrame with the rows of the numbers, in another order of columns."""
        frame = self.spark.range(numbers.start, numbers.stop, 1, 3)
        return frame.selectExpr(
            "array(concat('t', id % 3), 'x') AS tags",
            "if(id % 5 = 0, null, concat('text ', id)) AS text",
            f"timestamp_micros(id * {_SECOND}) AS taken",
            "id AS n",
        )


@dataclass(frozen=True)
class Outcome:
    """The rows of a feature, and those of its model, in order."""

    rows: list[Row]
    expected: list[Row]


def model(numbers: Iterable[int]) -> list[Row]:
    """Returns the rows of the numbers."""
    return [
        (n, None if n % 5 == 0 else f"text {n}", n * _SECOND, f"t{n % 3} x")
        for n in sorted(numbers)
    ]


def arrow_rows(numbers: Iterable[int]) -> pa.Table:
    """Returns the rows of the numbers as Arrow."""
    rows = model(numbers)
    columns = {
        "n": [row[0] for row in rows],
        "text": pa.array([row[1] for row in rows], pa.string()),
        "taken": pa.array([row[2] for row in rows], pa.timestamp("us", "UTC")),
        "tags": [row[3].split() for row in rows],
    }
    return pa.table(columns)


def rows_of(frame: DataFrame) -> list[Row]:
    """Returns the rows of a DataFrame, in order."""
    return sorted(tuple(row) for row in frame.selectExpr(*_COLUMNS).collect())


def stored(table: sleeper.Table) -> list[Row]:
    """Returns the rows of a table by a query without Spark, in order."""
    return _tuples(table.query().to_arrow())


def _tuples(rows: pa.Table) -> list[Row]:
    times = rows.column("taken").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    rows = rows.select(["n", "text", "tags"]).append_column("taken", times)
    return sorted(
        (row["n"], row["text"], row["taken"], " ".join(row["tags"])) for row in rows.to_pylist()
    )


def find_format(world: World) -> Outcome:
    """A session without a call of `register`."""
    world.table("registered", range(10))
    reader = world.spark.read.format("sleeper").options(**world.options("registered"))
    return Outcome(rows_of(reader.load()), model(range(10)))


def read_batch(world: World) -> Outcome:
    """A table with rows in several files of a leaf."""
    table = world.table("read", range(100))
    table.ingest(arrow_rows(range(100, 120)))
    table.ingest(arrow_rows(range(20, 30)))
    return Outcome(rows_of(world.load("read")), model([*range(120), *range(20, 30)]))


def read_parts(world: World) -> Outcome:
    """Keys, ranges, columns and an older version."""
    table = world.table("parts", range(100))
    version = table.version
    table.ingest(arrow_rows(range(100, 120)))
    some = {"keys": "[1, 2]", "ranges": "[[50, 60], [90, null]]", "asOf": str(version)}
    rows = rows_of(world.load("parts", **some))
    columns = world.load("parts", keys="[7]", columns="text,n").collect()
    picked = [*rows, *[tuple(row) for row in columns]]
    numbers = [1, 2, *range(50, 60), *range(90, 100)]
    return Outcome(picked, [*model(numbers), ("text 7", 7)])


def read_files(world: World) -> Outcome:
    """`read_table` by Spark's own Parquet reader."""
    world.table("files", range(100))
    frame = sleeper.spark.read_table(world.spark, "files", world.where, range="[10, 90]")
    return Outcome(rows_of(frame), model(range(10, 90)))


def read_merged(world: World) -> Outcome:
    """`read_table` of a table whose rows need a merge, because deletes are not compacted."""
    table = world.table("merged", range(100))
    table.delete(keys=[(20,), (21,)])
    frame = sleeper.spark.read_table(world.spark, "merged", world.where, range="[10, 90]")
    return Outcome(rows_of(frame), model(set(range(10, 90)) - {20, 21}))


def write_batch(world: World) -> Outcome:
    """A write that is repeated under its job's id."""
    table = world.table("written")
    sleeper.spark.register(world.spark)
    for _ in range(2):
        writer = world.frame(range(100)).write.format("sleeper").mode("append")
        writer.options(**world.options("written", jobId="once")).save()
    return Outcome(stored(table), model(range(100)))


def write_by_function(world: World) -> Outcome:
    """`write_table`, repeated under its job's id."""
    table = world.table("function")
    for _ in range(2):
        frame = world.frame(range(100))
        sleeper.spark.write_table(frame, "function", world.where, job_id="once")
    return Outcome(stored(table), model(range(100)))


def write_stream(world: World) -> Outcome:
    """Files of Parquet, streamed into a table in micro-batches."""
    source, table = world.folder / "streamed", world.table("sink")
    sleeper.spark.register(world.spark)
    frame = world.frame(range(100))
    frame.write.parquet(str(source))
    rows = world.spark.readStream.schema(frame.schema).parquet(str(source))
    sink = rows.writeStream.format("sleeper").options(**world.options("sink"))
    sink = sink.option("checkpointLocation", str(world.folder / "sink-checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()
    return Outcome(stored(table), model(range(100)))


def read_stream(world: World) -> Outcome:
    """A stream that stops and continues at its checkpoint."""
    table = world.table("followed", range(50))
    sleeper.spark.register(world.spark)
    rows: list[Row] = []
    for numbers in (range(50, 60), range(60, 70)):
        table.ingest(arrow_rows(numbers))
        stream = world.spark.readStream.format("sleeper").options(**world.options("followed"))
        rows = _collect(world, stream.load(), "followed")
    return Outcome(rows, model(range(70)))


def _collect(world: World, stream: DataFrame, name: str, *columns: str) -> list[Row]:
    """Returns the rows of all micro-batches so far, which a sink of Parquet gathers."""
    path = str(world.folder / f"{name}-rows")
    rows = stream.selectExpr(*(columns or _COLUMNS))
    sink = rows.writeStream.format("parquet").option("path", path)
    sink = sink.option("checkpointLocation", str(world.folder / f"{name}-checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()
    return sorted(tuple(row) for row in world.spark.read.parquet(path).collect())


def stream_changes(world: World) -> Outcome:
    """Rows and a delete, as `sleeper-changes`."""
    table = world.table("changed", range(5))
    table.delete(keys=[(3,)])
    sleeper.spark.register(world.spark)
    stream = world.spark.readStream.format("sleeper-changes").options(**world.options("changed"))
    columns = ("number", "operation", "coalesce(row.n, -1) AS n")
    rows = _collect(world, stream.load(), "changed", *columns)
    return Outcome(rows, [*((2, "insert", n) for n in range(5)), (3, "delete_region", -1)])


def read_stash(world: World) -> Outcome:
    """A table of a stash, as `sleeper-stash`."""
    world.table("stashed", range(100))
    destination = world.folder / "read-stash"
    run_stash(world.instance._ports, str(destination))
    frame = sleeper.spark.read_stash(world.spark, str(destination), "stashed")
    return Outcome(rows_of(frame), model(range(100)))


def bulk_import(world: World) -> Outcome:
    """Files of Parquet, in the session of this process."""
    table = world.table("imported")
    source = world.folder / "imported"
    world.frame(range(100)).write.parquet(str(source))
    settings = SparkSettings("local[2]")
    import_on(settings, world.instance._ports, "imported", [str(source)], "j", lambda *_: None)
    return Outcome(stored(table), model(range(100)))


def write_stash(world: World) -> Outcome:
    """The tasks of a large table of a stash."""
    world.table("large", range(100))
    ports = world.instance._ports
    destination = str(world.folder / "written-stash")
    request = StashRequest(destination, ("large",), piece_bytes=500, submitted=True)
    record = start_stash(ports, request)
    (version,) = plan_stash(ports, record, "matrix", spark_bytes=1)
    with start_session("matrix", SparkSettings("local[2]"), world.folder) as session:
        write_table(session, ports, record, version.id)
    complete_stash(ports, record)
    with Stash.open(destination).scan("large") as scanned:
        rows = pa.Table.from_batches(scanned.batches())
    return Outcome(_tuples(rows), model(range(100)))


def export(world: World) -> Outcome:
    """A bulk export, read by Spark."""
    world.table("exported", range(100))
    folder = str(world.folder / "exports")
    result = export_table(world.instance._ports, "exported", folder, "e", "")
    return Outcome(rows_of(world.spark.read.parquet(result.location)), model(range(100)))


def enrich(world: World) -> Outcome:
    """Values of a store, for keys that it has and others."""
    return _enrich(world, "store", None)


def enrich_in_partitions(world: World) -> Outcome:
    """The same, of a store that no executor has as a whole."""
    return _enrich(world, "parted", 3)


def _enrich(world: World, name: str, partitions: int | None) -> Outcome:
    table = world.instance.create_table(name, ORDERS, {"sleeper.table.rows": "latest"})
    table.ingest(pa.table({"n": range(50), "text": [f"text {n}" for n in range(50)]}))
    store = sleeper.spark.StoreSource(f"table:{name}", world.where, str(world.folder / name))
    frame = world.spark.range(40, 60, 1, 3).withColumnRenamed("id", "key")
    rows = sleeper.spark.enrich(frame, store, on="key", partitions=partitions).collect()
    expected = [(n, f"text {n}" if n < 50 else None) for n in range(40, 60)]
    return Outcome(sorted(tuple(row) for row in rows), expected)


def delete_keys(world: World) -> Outcome:
    """The keys of a DataFrame."""
    table = world.table("deleted", range(100))
    keys = world.spark.range(10, 30, 1, 3).selectExpr("id AS n")
    sleeper.spark.delete_keys(keys, "deleted", world.where)
    sleeper.spark.delete_where("n >= 90", "deleted", world.where)
    return Outcome(stored(table), model([*range(10), *range(30, 90)]))


def load_database(world: World) -> Outcome:
    """An adapter that reads a table of PostgreSQL in parts, over JDBC."""
    url, user = split_user(os.environ[_DATABASE_VARIABLE])
    source = DatabaseSource(
        url,
        table="orders",
        user=user,
        password="env:MATRIX_PASSWORD",
        engine=Engine.SPARK,
        partition_column="n",
        partitions=3,
    )
    table = world.instance.create_table("orders", ORDERS, {"sleeper.table.type": "snapshot"})
    with closing(open_instance(world.where)) as ports:
        AdapterStore(ports.storage.root).create(Adapter("orders", source, TableSink("orders")))
        with local_databases(ports, SparkSettings("local[2]")) as spark:
            run_adapter(ports, "orders", spark=spark)
    rows = [tuple(row.values()) for row in table.query().to_arrow().to_pylist()]
    return Outcome(sorted(rows), [(n, f"text {n}") for n in range(100)])


@dataclass(frozen=True)
class Feature:
    """A row of the matrix, and the version of PySpark that it needs."""

    name: str
    run: Callable[[World], Outcome]
    since: tuple[int, int] = (3, 5)
    has_database: bool = False


DATA_SOURCES = (4, 0)
FEATURES = (
    Feature('`format("sleeper")` without `register`', find_format, DATA_SOURCES),
    Feature("batch read", read_batch, DATA_SOURCES),
    Feature("batch read of keys, ranges, columns, `asOf`", read_parts, DATA_SOURCES),
    Feature("batch write", write_batch, DATA_SOURCES),
    Feature("stream into a table", write_stream, DATA_SOURCES),
    Feature("stream from a table", read_stream, DATA_SOURCES),
    Feature("`sleeper-changes`", stream_changes, DATA_SOURCES),
    Feature("`sleeper-stash`", read_stash, DATA_SOURCES),
    Feature("`read_table` by Spark's reader", read_files),
    Feature("`read_table` with a merge", read_merged),
    Feature("`write_table`", write_by_function),
    Feature("`enrich`", enrich),
    Feature("`enrich` with `partitions`", enrich_in_partitions),
    Feature("`delete_keys`, `delete_where`", delete_keys),
    Feature("bulk import", bulk_import),
    Feature("stash, written by Spark", write_stash),
    Feature("bulk export, read by Spark", export),
    Feature("adapter over JDBC", load_database, has_database=True),
)
