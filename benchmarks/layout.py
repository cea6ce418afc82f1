"""The layout of data files: size, writing and full scans by five readers, for three data sets."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import SessionConfig, SessionContext

from benchmarks import tpch
from benchmarks.measuring import Measured, Task, Watch, run_by_turns
from benchmarks.result import Result, check, figure
from benchmarks.rows import random_rows
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from demo import flights
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.datafiles.write.layout import dictionary_columns
from sleeper.schema.model import Schema, schema_from_json, schema_to_json
from sleeper.storage.location import DataRoot

# The engine writes files of at most 64 MiB of rows.
ROWS = 250_000
_BATCH_ROWS = 65_536
_PLAIN = "plain, 128 KiB"
_LAYOUTS = {
    _PLAIN: FileSettings(),
    "scan": FileSettings(page_rows_max=20_000),
    "lookup": FileSettings(),
    "lookup, lz4": FileSettings(compression_codec="lz4"),
}


@dataclass(frozen=True, slots=True)
class _Data:
    """A folder with a data set: its rows in key order and its schema."""

    folder: Path

    def rows(self) -> pa.Table:
        return pq.read_table(self.folder / "rows.parquet").cast(arrow_schema(self.schema()))

    def schema(self) -> Schema:
        return schema_from_json((self.folder / "schema.json").read_text())

    def file(self, layout: str) -> Path:
        return self.folder / layout / "file.parquet"


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    sets = {name: make(settings.folder, rows) for name, make in _SETS.items()}
    figures = []
    for name, data in sets.items():
        counted = pq.read_metadata(data.folder / "rows.parquet").num_rows
        runs = {layout: _runs_of(data, layout, counted, settings.repeats) for layout in _LAYOUTS}
        for layout, jobs in runs.items():
            what = f"{name}, {layout}"
            sizes = [run.answer["bytes"] / counted for run in jobs["write"]]
            figures.append(figure(f"{what}: size", sizes, "MB/M rows"))
            for job, each in jobs.items():
                unit = "ns/row" if job == "spark" else "cpu ns/row"
                times = [_time(job, run) / counted * 1e9 for run in each]
                figures.append(figure(f"{what}: {job}", times, unit))
    work = (
        f"{rows:,} random rows, half as many of TPC-H's lineitem by order, and the flights of 2013"
        " by aircraft and time, in one data file each. Reading decodes all columns. Processor"
        " time; Spark's is that of the clock, in a warm session."
    )
    return Result("layout", work, tuple(figures))


def _runs_of(data: _Data, layout: str, rows: int, repeats: int) -> dict[str, list[Measured]]:
    place = {"folder": str(data.folder), "layout": layout}
    written = run_by_turns({"write": Task(__name__, "write", place)}, repeats)
    reads = {
        name: Task(__name__, "read", {**place, "reader": name, "rows": rows}) for name in _READERS
    }
    return written | run_by_turns(reads, repeats)


def _time(job: str, run: Measured) -> float:
    return float(run.answer["seconds"]) if job == "spark" else run.cpu_seconds


def write(watch: Watch, folder: str, layout: str) -> dict[str, Any]:
    """Encodes the rows into a file, in a warm process. Facts and sidecars are not measured."""
    data = _Data(Path(folder))
    rows, schema, path = data.rows(), data.schema(), data.file(layout)
    for each in (Watch(), watch):
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        if layout == _PLAIN:
            _write_plain(each, rows, path)
            continue
        writer = DataFileWriter(DataRoot(path.parent), path.name, schema, _LAYOUTS[layout])
        writer.write(rows.to_batches(_BATCH_ROWS))
        with each:
            writer.encode()
        writer.finish()
    return {"bytes": path.stat().st_size}


def _write_plain(watch: Watch, rows: pa.Table, path: Path) -> None:
    """Writes dictionaries and plain values only, as our writer did before."""
    settings = FileSettings()
    group_rows = settings.row_group_rows(rows.num_rows, rows.nbytes)
    with watch:
        pq.write_table(
            rows,
            path,
            compression="zstd",
            use_dictionary=dictionary_columns(rows.slice(0, group_rows)),
            row_group_size=group_rows,
            data_page_size=settings.page_bytes,
            dictionary_pagesize_limit=settings.pages.dictionary_bytes,
            write_page_index=True,
            write_page_checksum=True,
            store_schema=False,
        )


def read(watch: Watch, folder: str, layout: str, reader: str, rows: int) -> dict[str, Any]:
    """Reads all columns of the file."""
    path = str(_Data(Path(folder)).file(layout))
    count, seconds = _READERS[reader](watch, path)
    check(count == rows, f"{reader} found {count} rows of {rows}")
    return {"seconds": seconds}


def _data_fusion(watch: Watch, path: str) -> tuple[int, float]:
    session = SessionContext(SessionConfig().with_target_partitions(1))
    with watch:
        frame = session.read_parquet(path)
        return sum(each.to_pyarrow().num_rows for each in frame.execute_stream()), 0


def _arrow(watch: Watch, path: str) -> tuple[int, float]:
    with watch, pq.ParquetFile(path) as file:
        batches = file.iter_batches(_BATCH_ROWS, use_threads=False)
        return sum(batch.num_rows for batch in batches), 0


def _duck_db(watch: Watch, path: str) -> tuple[int, float]:
    import duckdb

    with duckdb.connect() as connection, watch:
        connection.execute("SET threads = 1")
        batches = connection.read_parquet(path).to_arrow_reader(_BATCH_ROWS)
        return sum(batch.num_rows for batch in batches), 0


def _polars(watch: Watch, path: str) -> tuple[int, float]:
    import polars

    with watch:
        return polars.read_parquet(path).height, 0


def _spark(watch: Watch, path: str) -> tuple[int, float]:
    from time import perf_counter

    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    seconds = []
    with watch:
        for _ in range(5):
            start = perf_counter()
            session.read.parquet(path).write.format("noop").mode("overwrite").save()
            seconds.append(perf_counter() - start)
    rows = session.read.parquet(path).count()
    session.stop()
    return rows, median(seconds[1:])


_READERS: dict[str, Callable[[Watch, str], tuple[int, float]]] = {
    "DataFusion": _data_fusion,
    "Arrow": _arrow,
    "DuckDB": _duck_db,
    "Polars": _polars,
    "spark": _spark,
}


def _random(folder: Path, rows: int) -> _Data:
    return _keep(folder / f"layout-random-{rows}", SCHEMA, lambda: random_rows(rows, 5))


def _lineitem(folder: Path, rows: int) -> _Data:
    rows //= 2  # they are wider
    schema = schema_from_json(json.dumps(tpch.schema("lineitem")))
    scale = rows / tpch.LINEITEM_ROWS

    def load() -> pa.Table:
        return pq.read_table(tpch.parquet_files(folder, scale)["lineitem"])

    return _keep(folder / f"layout-lineitem-{rows}", schema, load)


def _flights(folder: Path, _: int) -> _Data:
    (source := folder / "layout-flights-source").mkdir(parents=True, exist_ok=True)
    table = flights.prepare(source).table("flights")
    schema = schema_from_json(table.schema_file.read_text())

    def load() -> pa.Table:
        return pa.concat_tables([pq.read_table(file) for file in table.files])

    return _keep(folder / "layout-flights", schema, load)


def _keep(folder: Path, schema: Schema, load: Callable[[], pa.Table]) -> _Data:
    if not (folder / "schema.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rows = load().select([f.name for f in schema.fields]).cast(arrow_schema(schema))
        ordered = rows.sort_by([(f.name, "ascending") for f in schema.keys])
        pq.write_table(ordered, folder / "rows.parquet", compression="none")
        (folder / "schema.json").write_text(schema_to_json(schema))
    return _Data(folder)


_SETS: dict[str, Callable[[Path, int], _Data]] = {
    "random": _random,
    "lineitem": _lineitem,
    "flights": _flights,
}
