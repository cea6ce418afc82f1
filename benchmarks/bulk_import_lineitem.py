"""Bulk import of TPC-H's lineitem on Spark, beside Spark's own sort and write."""

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import tpch
from benchmarks.bulk_import import CORES, SPARK_SETTINGS, cpu_seconds_by_program, empty
from benchmarks.measuring import Measured, Task, Watch, rates, run_by_turns
from benchmarks.result import Aim, Figure, Result, check, figure, ratios
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.opening import create_instance, open_instance
from sleeper.spark.cluster import SparkCluster
from sleeper.spark.session import start_session
from sleeper.spark.settings import SparkSettings

ROWS = 60_000_000
_LEAVES = 128
_WARM_SCALE = 0.01
_SUMS = "count(*), sum(l_orderkey), sum(l_extendedprice), sum(length(l_comment)), count(l_shipdate)"


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    scale = rows / tpch.LINEITEM_ROWS
    places: dict[str, Any] = {
        "source": str(tpch.lineitem_file(settings.folder, scale)),
        "warm": str(tpch.lineitem_file(settings.folder, _WARM_SCALE)),
        "folder": str(settings.folder / "bulk-import-lineitem"),
    }
    tasks = {
        "ours": Task(__name__, "ours", {**places, "keys": rows}),
        "spark": Task(__name__, "spark", places),
    }
    runs = run_by_turns(tasks, settings.repeats)
    sums = _sums(Path(places["source"]))
    for results in runs.values():
        for run in results:
            check(run.answer["sums"] == sums, f"sums {run.answer['sums']}, expected {sums}")
    imported = sums[0] // 100
    speed = {name: rates(imported, results) for name, results in runs.items()}
    figures = (
        figure("of Spark's own", ratios(speed["ours"], speed["spark"]), "×", Aim(1.5)),
        figure("a core", [each / CORES for each in speed["ours"]], "M rows/s"),
        figure("ours", speed["ours"], "M rows/s"),
        figure("Spark's own", speed["spark"], "M rows/s"),
        *_cpu_figures(imported, "ours", runs["ours"]),
        *_cpu_figures(imported, "Spark's own", runs["spark"]),
    )
    work = (
        f"TPC-H's lineitem at scale {scale:g}, {imported:,} rows of 16 columns in one Parquet file"
        f" of the generator → {_LEAVES} leaves by order, sketches and key filters, committed, on"
        f" Spark `local[{CORES}]`; Spark's own range partitions the same rows, sorts and writes"
        " them as Parquet (zstd), and commits nothing. The session is warm. The generator's rows"
        " are in the order of the key, which both sort again."
    )
    return Result("bulk-import-lineitem", work, figures)


def ours(watch: Watch, source: str, warm: str, folder: str, keys: int) -> dict[str, Any]:
    place = empty(Path(folder) / "ours")
    create_instance(place)
    instance = open_instance(place)
    schema = json.dumps(tpch.schema("lineitem"))
    leaves = {"sleeper.table.bulk.import.min.leaf.partitions": str(_LEAVES)}
    points = [keys * each // _LEAVES for each in range(1, _LEAVES)]
    for name in ("warm", "rows"):
        create_table(instance, name, schema, leaves, points)
    settings = SparkSettings(f"local[{CORES}]", SPARK_SETTINGS)
    with start_session("benchmark", settings, place / "spark") as session:
        cluster = SparkCluster(session)
        bulk_import_paths(instance, "warm", [warm], lambda: cluster)
        previous = cpu_seconds_by_program()
        with watch:
            bulk_import_paths(instance, "rows", [source], lambda: cluster)
        cpu_seconds = _since(previous)
    table = instance.table("rows")
    with table.state.reading() as now:
        outputs = [place / file.path for file in now.files.all()]
    answer = {"cpu_seconds": cpu_seconds, "sums": _sums(*outputs)}
    instance.close()
    shutil.rmtree(place)
    return answer


def spark(watch: Watch, source: str, warm: str, folder: str) -> dict[str, Any]:
    place = empty(Path(folder) / "spark")
    settings = SparkSettings(f"local[{CORES}]", SPARK_SETTINGS)
    with start_session("benchmark", settings, place / "spark") as session:

        def write(source: str, target: Path) -> None:
            ranged = session.read.parquet(source).repartitionByRange(_LEAVES, "l_orderkey")
            in_order = ranged.sortWithinPartitions("l_orderkey", "l_linenumber")
            in_order.write.option("compression", "zstd").parquet(str(target))

        write(warm, place / "warm")
        previous = cpu_seconds_by_program()
        with watch:
            write(source, place / "rows")
        cpu_seconds = _since(previous)
    answer = {"cpu_seconds": cpu_seconds, "sums": _sums(*(place / "rows").glob("*.parquet"))}
    shutil.rmtree(place)
    return answer


def _since(previous: dict[str, float]) -> dict[str, float]:
    """Returns the seconds of each program since then."""
    return {
        name: seconds - previous.get(name, 0.0)
        for name, seconds in cpu_seconds_by_program().items()
    }


def _cpu_figures(rows: int, name: str, results: list[Measured]) -> list[Figure]:
    """Returns figures of the processor time of each program for a row."""
    programs = dict.fromkeys(each for run in results for each in run.answer["cpu_seconds"])
    return [
        figure(
            f"{name}: processor time of {program}",
            [run.answer["cpu_seconds"].get(program, 0.0) * 1e6 / rows for run in results],
            "µs/row",
        )
        for program in programs
    ]


def _sums(*files: Path) -> list[int]:
    """Returns hundredths of the number of rows and of sums of columns, which prices have."""
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '1GB'")
        names = [str(file) for file in files]
        found = connection.execute(f"SELECT {_SUMS} FROM read_parquet($1)", [names]).fetchone()
    check(found is not None, "no sums of the files")
    return [int(each * 100) for each in found or ()]
