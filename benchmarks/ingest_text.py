"""Ingest of text: CSV and JSON lines become one sorted file, beside DataFusion and DuckDB."""

import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.beside import THREADS
from benchmarks.measuring import Measured, Task, Watch, peaks_mib, rates, run_by_turns
from benchmarks.peers.environment import DUCKDB, Installed, installed
from benchmarks.raw import open_raw_session, write_like_ours
from benchmarks.result import OURS, Aim, Result, check, comparison, figure, of_the_best
from benchmarks.rows import check_sorted, even_leaves
from benchmarks.settings import Settings
from benchmarks.text_files import CASES, FILES, Sums, make_text, sum_batch
from sleeper.clock import system_clock
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.ingest.run import IngestTable, ingest_files
from sleeper.local.state_store import open_state_store
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot

ROWS = 10_000_000
_MEMORY_BYTES = SORT_MEMORY_BYTES.default or 0
_DATAFUSION = "DataFusion"
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_DUCKDB_TYPES = {"key": "VARCHAR", "sort": "BIGINT", "value": "VARCHAR"}


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    peers = installed(settings.folder, (DUCKDB,))
    figures, comparisons = [], []
    for name in CASES:
        runs = run_by_turns(_make_tasks(settings, name, rows, peers), settings.repeats)
        speed = {who: rates(rows, results) for who, results in runs.items()}
        others = [who for who in runs if who != OURS]
        best = of_the_best(speed, OURS, others, less_is_better=False)
        peak = figure(f"{name}, peak", peaks_mib(runs[OURS]), "MiB", Aim(2048, is_most=True))
        figures += [figure(f"{name}, of the faster", best, "×", Aim(0.8)), peak]
        comparisons.append(comparison(f"{name}, speed", speed, "M rows/s", less_is_better=False))
        seconds = {who: [run.cpu_seconds for run in results] for who, results in runs.items()}
        comparisons.append(comparison(f"{name}, processor time", seconds, "s"))
    work = (
        f"{rows:,} unsorted rows in {FILES} text files → one sorted Parquet file, zstd at level 1."
        " A third of the nullable values is null; a map has up to three entries."
    )
    notes = (
        "Sleeper checks each row against the schema, writes sketches, key filter and checksum,"
        " commits, and synchronizes the disk. The peers do not.",
        f"Each has {_MEMORY_BYTES >> 20:,} MiB by its own settings and {THREADS} threads.",
    )
    return Result("ingest-text", work, tuple(figures), tuple(comparisons), notes)


def _make_tasks(
    settings: Settings, name: str, rows: int, peers: list[Installed]
) -> dict[str, Task]:
    paths, sums = make_text(settings.folder, CASES[name], rows)
    folder = settings.folder / "ingest-text"
    arguments: dict[str, Any] = {
        "case": name,
        "files": list(map(str, paths)),
        "folder": str(folder),
    }
    output = folder / "out.parquet"
    tasks = {
        OURS: Task(__name__, "ours", arguments, check=partial(_check_all, folder / "data", sums)),
        _DATAFUSION: Task(__name__, "raw", arguments, check=partial(_check_all, output, sums)),
    }
    for peer in peers:
        types = dict(_DUCKDB_TYPES)
        if CASES[name].has_maps:
            types["props"] = "MAP(VARCHAR, BIGINT)"
        own = {
            "types": types,
            "inputs": arguments["files"],
            "is_json": CASES[name].is_json,
            "output": str(output),
            "spill": str(folder),
            "memory_bytes": _MEMORY_BYTES,
            "threads": THREADS,
        }
        tasks[peer.label] = peer.task("ingest_text", own, partial(_check_all, output, sums))
    return tasks


def _check_all(output: Path, expected: Sums, _: Measured) -> None:
    """CheckFailedError unless the output is sorted and has the rows of the input."""
    paths = sorted(output.rglob("*.parquet")) if output.is_dir() else [output]
    totals = dict.fromkeys(asdict(expected), 0)
    for path in paths:
        check_sorted(path)
        for batch in pq.ParquetFile(path).iter_batches():
            for name, value in asdict(sum_batch(batch)).items():
                totals[name] += value
    check(totals == asdict(expected), f"{totals} came out of {asdict(expected)}")
    shutil.rmtree(output if output.is_dir() else output.parent)


def ours(watch: Watch, case: str, files: list[str], folder: str) -> None:
    place, schema = _empty(Path(folder)), CASES[case].schema
    state = open_state_store(place / "state.db")
    state.commit(InitialiseTable(schema_to_json(schema), tuple(even_leaves(1))))
    (place / "spill").mkdir()
    engine = EngineSettings(place / "spill", memory_bytes=_MEMORY_BYTES, threads=THREADS)
    data = DataRoot(place / "data")
    table = IngestTable("0a0b0c0d", schema, state, data, engine, system_clock)
    with watch:
        ingest_files(table, "job", [Path(file) for file in files], "request")
    state.close()


def raw(watch: Watch, case: str, files: list[str], folder: str) -> None:
    place = _empty(Path(folder))
    session = open_raw_session(place / "spill", _MEMORY_BYTES, THREADS)
    first = Path(files[0])
    options: dict[str, Any] = {
        "schema": arrow_schema(CASES[case].schema),
        "file_extension": f".{CASES[case].ending}",
        "file_compression_type": _COMPRESSIONS.get(first.suffix),
    }
    register = session.register_json if CASES[case].is_json else session.register_csv
    with watch:
        register("rows", str(first.parent), **options)
        in_order = session.sql("SELECT * FROM rows ORDER BY key, sort")
        write_like_ours(in_order, place / "out.parquet")


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
