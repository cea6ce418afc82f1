"""Enrichment in Spark, beside a broadcast join and remote lookups."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sleeper
from benchmarks.key_value_server import KeyValueClient, key_value_server
from benchmarks.measuring import Task, Watch, rates, run_by_turns
from benchmarks.result import Aim, Figure, Result, check, figure, ratios
from benchmarks.settings import Settings
from sleeper.spark import StoreSource, enrich

_ROWS = 20_000_000
_KEYS = 1_000_000
_WARM_ROWS = 1_000_000
_REMOTE_ROWS = 40_000
_BATCHED_ROWS = 1_000_000
_BATCH = 1_000
_FILES = 8
_COUNTRIES = 200
_TABLE = "accounts"
_SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "country", "type": "StringType"},
        {"name": "score", "type": "DoubleType"},
    ],
}


def measure(settings: Settings) -> Result:
    rows = settings.rows or _ROWS
    home = _built(settings.folder, rows)
    arguments = {"home": str(home), "rows": rows}
    runs = run_by_turns(
        {
            "enrich": Task(__name__, "enriched", {**arguments, "partitions": None}),
            "enrich, partitioned": Task(__name__, "enriched", {**arguments, "partitions": 4}),
            "broadcast join": Task(__name__, "joined", arguments),
        },
        settings.repeats,
    )
    speed = {name: rates(rows, found) for name, found in runs.items()}
    first = [each.answer["first_seconds"] for each in runs["enrich"]]
    figures = [
        figure("enrich", speed["enrich"], "M rows/s"),
        figure("enrich, partitioned", speed["enrich, partitioned"], "M rows/s"),
        figure("broadcast join", speed["broadcast join"], "M rows/s"),
        figure(
            "enrich, of broadcast join",
            ratios(speed["enrich"], speed["broadcast join"]),
            "×",
            Aim(0.5),
        ),
        figure(f"the first {_WARM_ROWS:,} rows, with the load of the store", first, "s"),
        *_measure_remote(settings, arguments, speed["enrich"]),
    ]
    work = (
        f"{rows:,} rows of three numbers in {_FILES} Parquet files, with random keys, get a text"
        f" and a number of one of {_KEYS:,} keys, on Spark `local[2]`. All columns are summed, and"
        f" the sums checked. In a session that enriched {_WARM_ROWS:,} rows before; the store is on"
        " disk then, and the broadcast join broadcasts each time."
    )
    notes = (
        "The remote server has a dict and a binary protocol, on the same machine: less work per"
        " request than any real one. Each task has a connection, from `mapInArrow`.",
    )
    return Result("adjunct-spark", work, tuple(figures), (), notes)


def _measure_remote(
    settings: Settings, arguments: dict[str, Any], speed: list[float]
) -> list[Figure]:
    counts = {1: _REMOTE_ROWS, _BATCH: _BATCHED_ROWS}
    with key_value_server(_KEYS, _COUNTRIES) as port:
        tasks = {
            str(size): Task(
                __name__,
                "remote",
                {"home": arguments["home"], "rows": count, "batch": size, "port": port},
            )
            for size, count in counts.items()
        }
        runs = run_by_turns(tasks, settings.repeats)
    single, batched = (rates(count, runs[str(size)]) for size, count in counts.items())
    return [
        figure("remote lookup per row", single, "M rows/s"),
        figure(f"remote lookups, {_BATCH:,} at once", batched, "M rows/s"),
        figure("enrich, of a remote lookup per row", ratios(speed, single), "×", Aim(5)),
        figure(f"enrich, of remote lookups, {_BATCH:,} at once", ratios(speed, batched), "×"),
    ]


def enriched(watch: Watch, home: str, rows: int, partitions: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        spark = _session(Path(scratch))
        store = StoreSource(f"table:{_TABLE}", str(Path(home, "instance")), f"{scratch}/stores")

        def add(facts: DataFrame) -> DataFrame:
            return enrich(facts, store, "account", partitions=partitions)

        first = Watch()
        with first:
            _sum(add(_facts(spark, home).limit(_WARM_ROWS)))
        with watch:
            found = _sum(add(_facts(spark, home)))
        spark.stop()
    _check(found, rows)
    return {"first_seconds": first.seconds}


def joined(watch: Watch, home: str, rows: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        spark = _session(Path(scratch))
        accounts = spark.read.parquet(str(Path(home, "accounts.parquet")))

        def add(facts: DataFrame) -> DataFrame:
            small = f.broadcast(accounts.withColumnRenamed("id", "account"))
            return facts.join(small, "account", "left")

        _sum(add(_facts(spark, home).limit(_WARM_ROWS)))
        with watch:
            found = _sum(add(_facts(spark, home)))
        spark.stop()
    _check(found, rows)
    return {}


def remote(watch: Watch, home: str, rows: int, batch: int, port: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        spark = _session(Path(scratch))
        facts = _facts(spark, home).limit(rows).repartition(2).cache()
        facts.count()
        schema = "event long, account long, amount double, country string, score double"
        look_up = _make_remote(batch, port)
        with watch:
            found = _sum(facts.mapInArrow(look_up, schema))
        spark.stop()
    check(found["rows"] == rows, f"{found['rows']} rows came out of {rows}")
    check(found["score"] == found["account"] / 2, "the scores are wrong")
    return {}


def _make_remote(
    size: int, port: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with KeyValueClient(port) as client:
            for batch in batches:
                keys = batch.column("account").to_pylist()
                values: list[Any] = []
                for start in range(0, len(keys), size):
                    values += client.get_many(keys[start : start + size])
                countries = pa.array([each[0] for each in values], pa.string())
                scores = pa.array([each[1] for each in values], pa.float64())
                columns = [*batch.columns, countries, scores]
                names = [*batch.schema.names, "country", "score"]
                yield pa.RecordBatch.from_arrays(columns, names)

    return look_up


def _sum(frame: DataFrame) -> dict[str, Any]:
    (row,) = frame.agg(
        f.count("*").alias("rows"),
        f.sum("event").alias("event"),
        f.sum("account").alias("account"),
        f.sum("amount").alias("amount"),
        f.sum(f.length("country")).alias("letters"),
        f.sum("score").alias("score"),
    ).collect()
    return dict(row.asDict())


def _check(found: dict[str, Any], rows: int) -> None:
    check(found["rows"] == rows, f"{found['rows']} rows came out of {rows}")
    check(found["event"] == rows * (rows - 1) // 2, "rows are missing")
    check(found["score"] == found["account"] / 2, "the scores are wrong")
    check(found["letters"] == 10 * rows, "the countries are wrong")


def _facts(spark: SparkSession, home: str) -> DataFrame:
    return spark.read.parquet(str(Path(home, "facts")))


def _accounts() -> pa.Table:
    ids = np.arange(_KEYS)
    countries = pa.array([f"country{n:03}" for n in range(_COUNTRIES)])
    country = countries.take(pa.array(ids % _COUNTRIES))
    return pa.table({"id": ids, "country": country, "score": ids / 2})


def _built(folder: Path, rows: int) -> Path:
    """A folder with the facts, and the accounts as a file and as a table; made once."""
    home = folder / f"adjunct-spark-{rows}"
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        (home / "facts").mkdir(parents=True)
        accounts = _accounts()
        pq.write_table(accounts, home / "accounts.parquet")
        with sleeper.create_instance(home / "instance") as instance:
            instance.create_table(_TABLE, _SCHEMA).ingest(accounts)
        random = np.random.default_rng(1)
        cuts = np.linspace(0, rows, _FILES + 1).astype(int)
        for start, end in pairwise(cuts):
            facts = {
                "event": np.arange(start, end),
                "account": random.integers(0, _KEYS, end - start),
                "amount": random.random(end - start),
            }
            pq.write_table(pa.table(facts), home / "facts" / f"{start}.parquet")
        (home / "done").touch()
    return home


def _session(scratch: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
