"""Spark: a table through the data source, beside Spark's own reading of the same files."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sleeper
import sleeper.spark
from benchmarks.measuring import Task, Watch, rates, run_by_turns
from benchmarks.result import Aim, Result, check, figure, ratios
from benchmarks.rows import even_leaves, unsorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings

ROWS = 10_000_000
_LEAVES = 32
_TABLE = "words"
_RANGE = '["m", "n"]'


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    home = _built(settings.folder, rows)
    arguments = {"home": str(home), "rows": rows}
    tasks = {
        "data source": Task(__name__, "ours", {**arguments, "range": None}),
        "parquet": Task(__name__, "raw", arguments),
        "range": Task(__name__, "ours", {**arguments, "range": _RANGE}),
    }
    runs = run_by_turns(tasks, settings.repeats)
    speed = {name: rates(rows, runs[name]) for name in ("data source", "parquet")}
    of_range = runs["range"]
    figures = (
        figure("full scan, of spark.read.parquet", ratios(*speed.values()), "×", Aim(0.5)),
        figure("full scan", speed["data source"], "M rows/s"),
        figure("spark.read.parquet", speed["parquet"], "M rows/s"),
        figure("key range", [run.seconds for run in of_range], "s"),
        figure("key range, rows", [run.answer["rows"] for run in of_range], "rows"),
        figure("key range, files read", [run.answer["files"] for run in of_range], "files"),
    )
    work = (
        f"{rows:,} rows of a table of {_LEAVES} leaves, a file each, on Spark `local[2]`: rows"
        " counted, the sort key and the lengths of both strings summed, so that every column is"
        f" read; the range is {_RANGE}. In a session that ran the same on one leaf before."
    )
    return Result("spark-read", work, figures)


def ours(watch: Watch, home: str, rows: int, range: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        spark = _session(Path(scratch))
        sleeper.spark.register(spark)
        names = {"instance": home, "table": _TABLE}

        def load(within: str | None) -> DataFrame:
            expected = {} if within is None else {"range": within}
            return spark.read.format("sleeper").options(**names, **expected).load()

        _sum(load('["a", "ab"]'))
        with watch:
            frame = load(range)
            result = _sum(frame)
        files = _files_in(Path(home), range)
        spark.stop()
    check(files == (_LEAVES if range is None else _leaves_in("m", "n")), f"{files} files are read")
    if range is None:
        _check(result, rows)
    return {"rows": result["rows"], "files": files}


def raw(watch: Watch, home: str, rows: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        spark = _session(Path(scratch))
        paths = sorted(str(path) for path in Path(home).rglob("data/**/*.parquet"))
        _sum(spark.read.parquet(paths[0]))
        with watch:
            result = _sum(spark.read.parquet(*paths))
        spark.stop()
    _check(result, rows)
    return {}


def _sum(frame: DataFrame) -> dict[str, Any]:
    (row,) = frame.agg(
        f.count("*").alias("rows"),
        f.sum(f.col("sort").bitwiseAND(0xFFFF)).alias("sort"),
        f.sum(f.length("key") + f.length("value")).alias("letters"),
    ).collect()
    return dict(row.asDict())


def _check(totals: dict[str, Any], rows: int) -> None:
    check(totals["rows"] == rows, f"{totals['rows']} rows came out of {rows}")
    check(totals["letters"] == 20 * rows, f"{totals['letters']} letters in {rows} rows")


def _points() -> list[str]:
    """The least key of every leaf."""
    return sorted({str(leaf.region.ranges[0].min) for leaf in even_leaves(_LEAVES)})


def _leaves_in(low: str, high: str) -> int:
    """How many leaves a range over the first letter touches."""
    points = _points()
    cuts = [*zip(points, [*points[1:], None], strict=True)]
    return sum(start < high and (end is None or low < end) for start, end in cuts)


def _files_in(home: Path, within: str | None) -> int:
    from sleeper.opening import open_instance
    from sleeper.query.distributed.read import plan_table_read
    from sleeper.spark.options import read_query

    instance = open_instance(home)
    query = read_query({} if within is None else {"range": within}, SCHEMA)
    _, parts = plan_table_read(instance.table(_TABLE), query, "benchmark", 1)
    return len({s.file.path for p in parts for leaf in p.leaves for s in leaf.scans})


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
                _points()[1:],
            )
            table.ingest(unsorted_files(folder, rows))
        (home / "done").touch()
    return home


def _session(scratch: Path) -> SparkSession:
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
