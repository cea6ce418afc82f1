"""Spark: a stream of a table's changes, beside batch reads of the same rows."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sleeper
import sleeper.spark
from benchmarks.measuring import Measured, Task, Watch, rates, run_by_turns
from benchmarks.result import Aim, Result, check, figure, ratios
from benchmarks.rows import random_rows
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from benchmarks.spark_read import leaf_points, spark_session

ROWS = 10_000_000
_ROWS_EACH = {"small": 50_000, "large": 2_500_000}
_WARM = "warm"
_COMPACTED = "compacted"
_WARM_ROWS = 10_000
_SUMS = "sums.json"
_BITS = 0xFFFF

Sums = dict[str, list[int]]


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    home = _built(settings.folder, rows)
    sums = json.loads((home / _SUMS).read_text())
    ways = [(way, name) for name in _ROWS_EACH for way in ("stream", "batch")]
    tasks = {
        f"{way} {name}": Task(__name__, way, {"home": str(home), "table": name, "sums": sums})
        for way, name in [*ways, ("batch", _COMPACTED)]
    }
    runs = run_by_turns(tasks, settings.repeats)

    def ratio(anchor: str, name: str) -> list[float]:
        return ratios(_seconds(runs[anchor]), _seconds(runs[f"stream {name}"]))

    figures = [
        figure(f"{name} ingests, of a batch read of them", ratio(f"batch {name}", name), "×")
        for name in _ROWS_EACH
    ]
    figures += [
        figure(
            f"{name} ingests, of a batch read of few large files",
            ratio(f"batch {_COMPACTED}", name),
            "×",
            Aim(0.8),
        )
        for name in _ROWS_EACH
    ]
    figures += [figure(name, rates(rows, results), "M rows/s") for name, results in runs.items()]
    sizes = " and in ".join(
        f"{rows // each:,} ingests of {each:,} rows ({name})" for name, each in _ROWS_EACH.items()
    )
    work = (
        f"{rows:,} rows in {sizes}, over {len(leaf_points())} leaves, on Spark `local[2]`: a stream"
        " of `sleeper-changes` from the first transaction to the newest (`availableNow`), and batch"
        " reads by the format `sleeper` of the same table and of one that has a file for each leaf."
        " Each sums the sort key and the lengths of both strings; the stream also has the number,"
        " time, job and operation of each row. In a session that did the same with a small table."
    )
    return Result("spark-changes", work, tuple(figures))


def _seconds(runs: list[Measured]) -> list[float]:
    return [run.seconds for run in runs]


def stream(watch: Watch, home: str, table: str, sums: Sums) -> None:
    def read(spark: SparkSession, name: str, checkpoint: str) -> list[int]:
        totals: list[list[int]] = []
        changes = spark.readStream.format("sleeper-changes").options(
            instance=home, table=name, startingVersion="0"
        )
        query = (
            changes.load()
            .writeStream.foreachBatch(lambda frame, _: totals.append(_sums(frame.select("row.*"))))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [sum(column) for column in zip(*totals, strict=True)]

    _measure(watch, read, table, sums)


def batch(watch: Watch, home: str, table: str, sums: Sums) -> None:
    def read(spark: SparkSession, name: str, _: str) -> list[int]:
        return _sums(spark.read.format("sleeper").options(instance=home, table=name).load())

    _measure(watch, read, table, sums)


def _measure(
    watch: Watch, read: Callable[[SparkSession, str, str], list[int]], table: str, sums: Sums
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        spark = spark_session(Path(scratch))
        sleeper.spark.register(spark)
        answers = {_WARM: read(spark, _WARM, f"{scratch}/first")}
        with watch:
            answers[table] = read(spark, table, f"{scratch}/second")
        for name, answer in answers.items():
            check(answer == sums[name], f"{name}: sums {answer}, expected {sums[name]}")
        spark.stop()


def _sums(frame: DataFrame) -> list[int]:
    """Returns the number of rows, and sums over the columns."""
    (row,) = frame.agg(
        f.count("*"),
        f.sum(f.length("key") + f.length("value")),
        f.sum(f.col("sort").bitwiseAND(_BITS)),
    ).collect()
    return [int(each) for each in row]


def _add(table: sleeper.Table, rows_each: int, ingests: int) -> list[int]:
    """Ingests random rows, and returns their sums."""
    sums = [0, 0, 0]
    for seed in range(ingests):
        rows = random_rows(rows_each, seed)
        table.ingest(rows)
        lengths = [pc.sum(pc.binary_length(rows.column(name))).as_py() for name in ("key", "value")]
        sorts = pc.sum(pc.bit_wise_and(rows.column("sort"), _BITS)).as_py()
        sums = [a + b for a, b in zip(sums, (rows_each, sum(lengths), sorts), strict=True)]
    return sums


def _built(folder: Path, rows: int) -> Path:
    """Makes an instance with the tables once, and returns its folder, which has their sums."""
    home = folder / f"spark-changes-{rows}"
    if (home / _SUMS).exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    points = leaf_points()[1:]
    by_leaf = {"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"}
    with sleeper.create_instance(home) as instance:
        sums = {
            name: _add(instance.create_table(name, SCHEMA, {}, points), each, rows // each)
            for name, each in _ROWS_EACH.items()
        }
        whole = instance.create_table(_COMPACTED, SCHEMA, by_leaf, points)
        sums[_COMPACTED] = _add(whole, rows, 1)
        sums[_WARM] = _add(instance.create_table(_WARM, SCHEMA), _WARM_ROWS, 1)
    (home / _SUMS).write_text(json.dumps(sums))
    return home
