"""Spark: a table through the data source, beside Spark's own reading of the same files."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sleeper
import sleeper.spark
from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import Aim, Result, check, figure, ratios
from benchmarks.rows import even_leaves, unsorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings

ROWS = 10_000_000
_LEAVES = 32
_TABLE = "words"
_RANGE = '["m", "n"]'
_IN_RANGE = "key >= 'm' AND key < 'n'"
_JOBS = ("full scan", "two columns", "key range")
_LETTERS = 10


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    home = _built(settings.folder, rows)
    arguments = {"home": str(home), "rows": rows}
    tasks = {
        each.__name__: Task(__name__, each.__name__, arguments) for each in (table, source, parquet)
    }
    runs = run_by_turns(tasks, settings.repeats)
    seconds = {
        name: {job: [run.answer[job] for run in results] for job in _JOBS}
        for name, results in runs.items()
    }
    speed = {
        name: [rows / each / 1e6 for each in jobs["full scan"]] for name, jobs in seconds.items()
    }
    figures = [
        figure(
            f"{job}, of spark.read.parquet",
            ratios(seconds["parquet"][job], seconds["table"][job]),
            "×",
            Aim(0.8),
        )
        for job in _JOBS
    ]
    figures += [
        figure(
            f"{job}, format sleeper, of spark.read.parquet",
            ratios(seconds["parquet"][job], seconds["source"][job]),
            "×",
        )
        for job in _JOBS
    ]
    figures += [
        figure("full scan", speed["table"], "M rows/s"),
        figure("full scan, format sleeper", speed["source"], "M rows/s"),
        figure("full scan, spark.read.parquet", speed["parquet"], "M rows/s"),
        figure("key range", seconds["table"]["key range"], "s"),
        figure("key range, files read", [run.answer["files"] for run in runs["table"]], "files"),
    ]
    work = (
        f"{rows:,} rows of a table of {_LEAVES} leaves, a file each, on Spark `local[2]`, by"
        " `read_table`, by the format `sleeper`, and by `spark.read.parquet` on the same files:"
        " rows counted, the sort key and the lengths of both strings summed, so every column is"
        f" read; the same without the value; the same over the keys {_RANGE}, which"
        " `spark.read.parquet` has as a filter. In a session that ran the same on one leaf before."
    )
    return Result("spark-read", work, tuple(figures))


def table(watch: Watch, home: str, rows: int) -> dict[str, Any]:
    def load(spark: SparkSession, job: str) -> DataFrame:
        names: dict[str, object] = {} if job != "key range" else {"range": _RANGE}
        return sleeper.spark.read_table(spark, _TABLE, home, **names)

    return _measure(watch, load, rows) | {"files": _files_in(Path(home), _RANGE)}


def source(watch: Watch, home: str, rows: int) -> dict[str, Any]:
    options: dict[str, dict[str, str]] = {
        "full scan": {},
        "two columns": {"columns": "key,sort"},
        "key range": {"range": _RANGE},
    }

    def load(spark: SparkSession, job: str) -> DataFrame:
        sleeper.spark.register(spark)
        names = {"instance": home, "table": _TABLE, **options[job]}
        return spark.read.format("sleeper").options(**names).load()

    return _measure(watch, load, rows)


def parquet(watch: Watch, home: str, rows: int) -> dict[str, Any]:
    paths = sorted(str(path) for path in Path(home).rglob("data/**/*.parquet"))

    def load(spark: SparkSession, job: str) -> DataFrame:
        frame = spark.read.parquet(*paths)
        return frame if job != "key range" else frame.where(_IN_RANGE)

    return _measure(watch, load, rows)


def _measure(
    watch: Watch, load: Callable[[SparkSession, str], DataFrame], rows: int
) -> dict[str, Any]:
    """Returns the seconds of each job, in a session that has run them all on one leaf."""
    seconds: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        spark = spark_session(Path(scratch))
        for job in _JOBS:
            _sum(load(spark, job).where("key < 'ab'"), job)
        with watch:
            for job in _JOBS:
                start = perf_counter()
                result = _sum(load(spark, job), job)
                seconds[job] = perf_counter() - start
                _check(result, rows, job)
        spark.stop()
    return seconds


def _sum(frame: DataFrame, job: str) -> dict[str, Any]:
    lengths = f.length("key") + (f.length("value") if job != "two columns" else f.lit(_LETTERS))
    (row,) = frame.agg(
        f.count("*").alias("rows"),
        f.sum(f.col("sort").bitwiseAND(0xFFFF)).alias("sort"),
        f.sum(lengths).alias("letters"),
    ).collect()
    return dict(row.asDict())


def _check(totals: dict[str, Any], rows: int, job: str) -> None:
    if job != "key range":
        check(totals["rows"] == rows, f"{totals['rows']} rows came out of {rows}")
    else:
        # One of 26 letters.
        check(0.9 < 26 * totals["rows"] / rows < 1.1, f"{totals['rows']} rows are in the range")
    letters = 2 * _LETTERS * totals["rows"]
    check(totals["letters"] == letters, f"{totals['letters']} letters (expected {letters})")


def leaf_points() -> list[str]:
    """Returns the least key of every leaf."""
    return sorted({str(leaf.region.ranges[0].min) for leaf in even_leaves(_LEAVES)})


def _leaves_in(low: str, high: str) -> int:
    """How many leaves a range over the first letter touches."""
    points = leaf_points()
    cuts = [*zip(points, [*points[1:], None], strict=True)]
    return sum(start < high and (end is None or low < end) for start, end in cuts)


def _files_in(home: Path, within: str) -> int:
    from sleeper.opening import open_instance
    from sleeper.query.distributed.read import plan_table_read
    from sleeper.spark.options import read_query

    instance = open_instance(home)
    query = read_query({"range": within}, SCHEMA)
    _, parts = plan_table_read(instance.table(_TABLE), query, "benchmark", 1)
    files = len({s.file.path for p in parts for leaf in p.leaves for s in leaf.scans})
    check(files == _leaves_in("m", "n"), f"{files} files are read")
    return files


def _built(folder: Path, rows: int) -> Path:
    """An instance with the table, made once."""
    home = folder / f"spark-read-{rows}"
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        with sleeper.create_instance(home) as instance:
            table = instance.create_table(
                _TABLE,
                SCHEMA,
                {"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"},
                leaf_points()[1:],
            )
            table.ingest(unsorted_files(folder, rows))
        (home / "done").touch()
    return home


def spark_session(scratch: Path) -> SparkSession:
    """Starts a session of two cores with this Python."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
