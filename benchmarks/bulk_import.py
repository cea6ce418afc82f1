"""Bulk import on Spark: unsorted rows become sorted files of 128 leaves, committed."""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measuring import Task, Watch, rates, run_by_turns
from benchmarks.result import Aim, Result, figure, ratios
from benchmarks.rows import check_rows, even_leaves, unsorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.opening import create_instance, open_instance
from sleeper.schema.model import schema_to_json
from sleeper.spark.cluster import SparkCluster
from sleeper.spark.session import start_session
from sleeper.spark.settings import SparkSettings

ROWS = 20_000_000
_LEAVES = 128
CORES = 2
SPARK_SETTINGS = {"spark.driver.memory": "2g"}


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    source = unsorted_files(settings.folder, rows)
    warm = unsorted_files(settings.folder, 100_000)
    places = {
        "source": str(source),
        "warm": str(warm),
        "folder": str(settings.folder / "bulk-import"),
        "rows": rows,
    }
    tasks = {name: Task(__name__, name, places) for name in ("ours", "spark")}
    runs = run_by_turns(tasks, settings.repeats)
    speed = {name: rates(rows, results) for name, results in runs.items()}
    of_cpu = {
        name: [rows / run.answer["cpu_seconds"] / 1e6 for run in results]
        for name, results in runs.items()
    }
    figures = (
        figure("of Spark's own", ratios(speed["ours"], speed["spark"]), "×", Aim(1.5)),
        figure("a core", [item / CORES for item in speed["ours"]], "M rows/s", Aim(0.4)),
        figure("a second of processor time", of_cpu["ours"], "M rows"),
        figure("a second of processor time, Spark's own", of_cpu["spark"], "M rows"),
        figure("ours", speed["ours"], "M rows/s"),
        figure("Spark's own", speed["spark"], "M rows/s"),
    )
    work = (
        f"{rows:,} unsorted rows in 8 Parquet files → {_LEAVES} leaves, sketches and key filters,"
        f" committed, on Spark `local[{CORES}]`; Spark's own range partitions the same rows,"
        " sorts and writes them as Parquet (zstd), and commits nothing. The session is warm."
    )
    return Result("bulk-import", work, figures)


def ours(watch: Watch, source: str, warm: str, folder: str, rows: int) -> dict[str, Any]:
    place = empty(Path(folder) / "ours")
    create_instance(place)
    instance = open_instance(place)
    leaves = [leaf for leaf in even_leaves(_LEAVES) if leaf.is_leaf]
    points = sorted(leaf.region.ranges[0].min for leaf in leaves)[1:]
    for name in ("warm", "rows"):
        create_table(
            instance,
            name,
            schema_to_json(SCHEMA),
            {"sleeper.table.bulk.import.min.leaf.partitions": str(_LEAVES)},
            points,
        )
    settings = SparkSettings(f"local[{CORES}]", SPARK_SETTINGS)
    with start_session("benchmark", settings, place / "spark") as session:
        cluster = SparkCluster(session)
        bulk_import_paths(instance, "warm", [warm], lambda: cluster)
        previous = cpu_seconds_of_all()
        with watch:
            bulk_import_paths(instance, "rows", [source], lambda: cluster)
        cpu_seconds = cpu_seconds_of_all() - previous
    table = instance.table("rows")
    with table.state.reading() as now:
        outputs = [place / file.path for file in now.files.all()]
    check_rows(outputs, sorted(Path(source).iterdir()), rows)
    instance.close()
    shutil.rmtree(place)
    return {"cpu_seconds": cpu_seconds}


def spark(watch: Watch, source: str, warm: str, folder: str, rows: int) -> dict[str, Any]:
    place = empty(Path(folder) / "spark")
    settings = SparkSettings(f"local[{CORES}]", SPARK_SETTINGS)
    with start_session("benchmark", settings, place / "spark") as session:

        def write(source: str, target: Path) -> None:
            ranged = session.read.parquet(source).repartitionByRange(_LEAVES, "key")
            sorted_rows = ranged.sortWithinPartitions("key", "sort")
            sorted_rows.write.option("compression", "zstd").parquet(str(target))

        write(warm, place / "warm")
        previous = cpu_seconds_of_all()
        with watch:
            write(source, place / "rows")
        cpu_seconds = cpu_seconds_of_all() - previous
    outputs = sorted((place / "rows").glob("*.parquet"))
    check_rows(outputs, sorted(Path(source).iterdir()), rows)
    shutil.rmtree(place)
    return {"cpu_seconds": cpu_seconds}


def cpu_seconds_of_all() -> float:
    """Returns those of this process and all below it, Spark's Java and Python workers too."""
    return sum(cpu_seconds_by_program().values())


def cpu_seconds_by_program() -> dict[str, float]:
    """Returns those of this process, the driver, and of the programs below it."""
    own = psutil.Process()
    seconds: dict[str, float] = defaultdict(float)
    for each in (own, *own.children(recursive=True)):
        program = "driver" if each == own else each.name().rstrip("0123456789.")
        times = each.cpu_times()
        # The times of ended workers count for their parent.
        seconds[program] += times.user + times.system + times.children_user + times.children_system
    return dict(seconds)


def empty(folder: Path) -> Path:
    """Returns the folder, new and empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
