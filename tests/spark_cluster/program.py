"""Driver programs on a cluster: `python program.py SETTINGS NAME [ARGUMENT ...]`.

A program sees the installed wheel and its libraries only, so this file imports nothing of the
tests, which import it for the model. SETTINGS is JSON of a `Settings`. Each step of a program
prints a line of JSON: its name and the digest of its rows, or its error.
"""

import datetime
import hashlib
import importlib.util
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import sleeper

ROWS = 8_000
"""The rows of a program: those of the numbers from 0. Each has a key of its own."""

SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "sortKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [
        {"name": "text", "type": "StringType"},
        {"name": "half", "type": "DoubleType", "nullable": True},
        {"name": "time", "type": "TimestampType", "nullable": True},
        {"name": "words", "type": {"ListType": {"elementType": "StringType"}}},
    ],
}
_ARROW = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("half", pa.float64()),
        ("time", pa.timestamp("us", "UTC")),
        ("words", pa.list_(pa.string())),
    ]
)
_SPARK = "k string, n bigint, text string, half double, time timestamp, words array<string>"
ACCOUNTS: dict[str, Any] = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "country", "type": "StringType", "nullable": True}],
}
DELETED = range(0, 2_000, 3)
"""The numbers whose keys a program deletes."""
LAST_KEY = "090000"
"""A program deletes the rows from this key on."""

Digest = dict[str, Any]


def make_key(number: int) -> str:
    """Returns the row key of a number below 99,991."""
    return f"{number * 7919 % 99_991:06d}"


def make_rows(numbers: Iterable[int]) -> pa.Table:
    """Returns the rows of the numbers."""
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    rows = [
        {
            "k": make_key(n),
            "n": n,
            "text": f"text {n} é",
            "half": None if n % 5 == 0 else n / 7,
            "time": None if n % 11 == 0 else start + datetime.timedelta(seconds=n, microseconds=n),
            "words": [f"w{i}" for i in range(n % 4)],
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, schema=_ARROW)


def make_digest(rows: pa.Table) -> Digest:
    """Returns the number of rows, and a hash of each column, independent of the order of rows."""
    order = sorted(name for name in rows.column_names if not pa.types.is_list(rows[name].type))
    rows = rows.sort_by([(name, "ascending") for name in order])
    columns = {name: _hash(rows[name]) for name in sorted(rows.column_names)}
    return {"rows": rows.num_rows, "columns": columns}


def _hash(column: pa.ChunkedArray) -> str:
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.int64())
    return hashlib.sha256(repr(column.to_pylist()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Settings:
    """The cluster, the settings of the session, and the instance."""

    master: str
    conf: dict[str, str]
    instance: str
    bucket: str = ""
    folder: str = ""


class Program:
    """Steps on one session of Spark."""

    def __init__(self, settings: Settings) -> None:
        from pyspark.sql import SparkSession

        from sleeper.spark.jdbc_driver import jar_settings

        self.settings = settings
        builder = SparkSession.builder.master(settings.master).appName("program")
        for name, value in (jar_settings() | settings.conf).items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")
        sleeper.spark.register(self.spark)

    def options(self, table: str, **others: str) -> dict[str, str]:
        return {"instance": self.settings.instance, "table": table, **others}

    def read(self, table: str, **others: str) -> pa.Table:
        frame = self.spark.read.format("sleeper").options(**self.options(table, **others))
        rows: pa.Table = frame.load().toArrow()
        return rows

    def frame(self, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> Any:
        """Returns the rows as a DataFrame, made by that function from numbers."""
        return self.spark.range(0, ROWS, 1, 8).mapInArrow(work, _SPARK)

    def write(self, table: str, job_id: str, slow: str = "") -> pa.Table:
        """Writes the rows. Slow are `all` tasks, or the first attempt of the `first` one."""

        def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            if slow == "all":
                time.sleep(1)
            if slow == "first" and (context.attemptNumber(), context.partitionId()) == (0, 0):
                time.sleep(3_600)
            for batch in batches:
                yield from make_rows(batch.column(0).to_pylist()).to_batches()

        frame = self.frame(make)
        options = self.options(table, jobId=job_id)
        frame.write.format("sleeper").mode("append").options(**options).save()
        return self.read(table)

    def look_around(self) -> pa.Table:
        """Returns the hosts of tasks, and what their Pythons import."""

        def look(numbers: Iterable[int]) -> Iterator[tuple[str, str, str]]:
            time.sleep(0.5)
            repository = importlib.util.find_spec("tests")
            yield socket.gethostname(), str(sleeper.__file__), str(repository)

        tasks = self.spark.sparkContext.parallelize(range(8), 8).mapPartitions(look)
        names = ("host", "package", "repository")
        seen = sorted(set(tasks.collect()))
        return pa.table({name: [row[i] for row in seen] for i, name in enumerate(names)})

    def bulk_import(self, job_id: str) -> pa.Table:
        from sleeper.bulk_import.service import bulk_import_paths
        from sleeper.spark.cluster import SparkCluster

        with closing(sleeper.open_instance(self.settings.instance)) as instance:
            ports = instance._ports
            source = f"s3://{self.settings.bucket}/rows/"
            bulk_import_paths(ports, "imported", [source], lambda: SparkCluster(self.spark), job_id)
        return self.read("imported")

    def read_table(self) -> pa.Table:
        rows: pa.Table = sleeper.spark.read_table(
            self.spark, "written", self.settings.instance
        ).toArrow()
        return rows

    def stream(self) -> pa.Table:
        options = self.options("written", startingVersion="0", maxFilesPerTrigger="3")
        source = self.spark.readStream.format("sleeper").options(**options).load()
        sink = source.writeStream.format("sleeper").options(**self.options("copied"))
        self._run(sink, "copied")
        return self.read("copied")

    def delete(self) -> pa.Table:
        where = self.settings.instance
        keys = self.spark.createDataFrame([(make_key(n),) for n in DELETED], "k string")
        sleeper.spark.delete_keys(keys.repartition(4), "copied", where, "keys")
        sleeper.spark.delete_where(f"k >= '{LAST_KEY}'", "copied", where, "where")
        return self.read("copied")

    def changes(self) -> pa.Table:
        """Returns the changes of a table, without their numbers and times."""
        batches: list[pa.Table] = []
        options = self.options("copied", maxTransactionsPerTrigger="2")
        source = self.spark.readStream.format("sleeper-changes").options(**options).load()
        columns = ["operation", "row.*", "region.k.min"]

        def keep(batch: Any, _: int) -> None:
            batches.append(batch.select(*columns).toArrow())

        self._run(source.writeStream.foreachBatch(keep), "changes")
        return pa.concat_tables(batches)

    def _run(self, sink: Any, name: str) -> None:
        checkpoint = os.path.join(self.settings.folder, f"checkpoint-{name}")
        sink = sink.option("checkpointLocation", checkpoint)
        sink.trigger(availableNow=True).start().awaitTermination()

    def enrich(self) -> pa.Table:
        from sleeper.spark import StoreSource, enrich

        where = self.settings.instance
        store = StoreSource("table:accounts", where, os.path.join(self.settings.folder, "stores"))
        frame = self.spark.range(0, 1_000, 1, 8).withColumnRenamed("id", "account")
        rows: pa.Table = enrich(frame, store, on="account").toArrow()
        return rows

    def stash(self) -> pa.Table:
        """Writes a stash of a table by tasks of Spark, and reads it."""
        from sleeper.spark import read_stash
        from sleeper.stash.finish import complete_stash
        from sleeper.stash.planning import plan_stash
        from sleeper.stash.record import StashRequest
        from sleeper.stash.spark.job import write_table
        from sleeper.stash.start import start_stash

        destination = f"s3://{self.settings.bucket}/stash"
        with closing(sleeper.open_instance(self.settings.instance)) as instance:
            ports = instance._ports
            request = StashRequest(destination, ("written",), piece_bytes=50_000, submitted=True)
            record = start_stash(ports, request)
            (version,) = plan_stash(ports, record, "program", spark_bytes=1)
            write_table(self.spark, ports, record, version.id)
            complete_stash(ports, record)
        rows: pa.Table = read_stash(self.spark, destination, "written").toArrow()
        return rows.select([field.name for field in _ARROW])

    def load_database(self) -> pa.Table:
        from sleeper.adapters.run import run_adapter
        from sleeper.adapters.spark.database_load import local_databases
        from sleeper.spark.settings import SparkSettings

        with closing(sleeper.open_instance(self.settings.instance)) as instance:
            ports = instance._ports
            with local_databases(ports, SparkSettings(self.settings.master)) as spark:
                run_adapter(ports, "shop", "run", spark=spark)
        return self.read("orders")


def _report(name: str, step: Callable[[], pa.Table]) -> None:
    start = time.monotonic()
    try:
        rows = step()
    except Exception:
        result: dict[str, Any] = {"error": traceback.format_exc()}
    else:
        result = make_digest(rows) if name != "look_around" else {"seen": rows.to_pylist()}
    print(json.dumps({"step": name, **result}), flush=True)
    sys.stderr.write(f"{name}: {time.monotonic() - start:.1f} s\n")


def main(settings: str, name: str, *arguments: str) -> None:
    """Runs all steps, or one with its arguments."""
    program = Program(Settings(**json.loads(settings)))
    if name == "write":
        _report(name, lambda: program.write(*arguments))
    else:
        _report("look_around", program.look_around)
        _report("write", lambda: program.write("written", "w"))
        _report("write again", lambda: program.write("written", "w"))
        _report("read_table", program.read_table)
        _report("bulk_import", lambda: program.bulk_import("i"))
        _report("stream", program.stream)
        _report("delete", program.delete)
        _report("changes", program.changes)
        _report("enrich", program.enrich)
        _report("stash", program.stash)
        _report("load_database", program.load_database)
    program.spark.stop()


if __name__ == "__main__":
    import sleeper.spark

    main(*sys.argv[1:])
