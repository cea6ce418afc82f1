"""Ingest: unsorted rows become sorted files of 128 leaves, committed."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks.measuring import Task, Watch, peaks_mib, rates, run_by_turns
from benchmarks.raw import open_raw_session, write_like_ours, write_raw
from benchmarks.result import Aim, Result, check, figure, ratios
from benchmarks.rows import check_rows, even_leaves, unsorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.clock import system_clock
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.ingest.run import IngestTable, ingest_files
from sleeper.local.state_store import open_state_store
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot

ROWS = 20_000_000
_LEAVES = 128
_PUBLISHED_MILLION_ROWS = 0.208


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    source = unsorted_files(settings.folder, rows)
    places = {"source": str(source), "folder": str(settings.folder / "ingest"), "rows": rows}
    tasks = {
        strategy.value: Task(__name__, "ours", {**places, "strategy": strategy.value})
        for strategy in FileStrategy
    }
    for is_like_ours, name in ((True, "raw"), (False, "raw, its own settings")):
        tasks[name] = Task(__name__, "raw", {**places, "is_like_ours": is_like_ours})
    runs = run_by_turns(tasks, settings.repeats)
    speed = {name: rates(rows, results) for name, results in runs.items()}
    figures = []
    for strategy in FileStrategy:
        name = strategy.value
        figures += [
            figure(f"{name}, of raw", ratios(speed[name], speed["raw"]), "×", Aim(0.95)),
            figure(
                f"{name}, of raw with its own settings",
                ratios(speed[name], speed["raw, its own settings"]),
                "×",
            ),
            figure(name, speed[name], "M rows/s", Aim(10 * _PUBLISHED_MILLION_ROWS)),
            figure(f"{name}, peak", peaks_mib(runs[name]), "MiB", Aim(2048, is_most=True)),
        ]
    for name in ("raw", "raw, its own settings"):
        figures.append(figure(name, speed[name], "M rows/s"))
        figures.append(figure(f"{name}, peak", peaks_mib(runs[name]), "MiB"))
    work = (
        f"{rows:,} unsorted rows in 8 Parquet files → {_LEAVES} leaves, sketches, committed;"
        " raw DataFusion sorts and writes the same rows to one file with the same encodings and"
        " pages, and commits nothing."
    )
    return Result("ingest", work, tuple(figures))


def ours(watch: Watch, source: str, folder: str, rows: int, strategy: str) -> dict[str, Any]:
    place = _empty(Path(folder))
    state = open_state_store(place / "state.db")
    state.commit(InitialiseTable(schema_to_json(SCHEMA), tuple(even_leaves(_LEAVES))))
    spill = place / "spill"
    spill.mkdir()
    table = IngestTable(
        "0a0b0c0d",
        SCHEMA,
        state,
        DataRoot(place / "data"),
        EngineSettings(spill, memory_bytes=SORT_MEMORY_BYTES.default or 0),
        system_clock,
        strategy=FileStrategy(strategy),
    )
    with watch:
        ingest_files(table, "job", [Path(source)], "request")
    with state.reading() as now:
        totals = now.files.totals()
        outputs = [place / "data" / file.path for file in now.files.all()]
    check(totals.rows == rows, f"{totals.rows} rows are committed of {rows}")
    check(totals.references == _LEAVES, f"{totals.references} references for {_LEAVES} leaves")
    check_rows(outputs, sorted(Path(source).iterdir()), rows)
    state.close()
    shutil.rmtree(place)
    return {"files": totals.files}


def raw(watch: Watch, source: str, folder: str, rows: int, is_like_ours: bool) -> None:
    place = _empty(Path(folder))
    session = open_raw_session(place / "spill", SORT_MEMORY_BYTES.default or 0, 2)
    output = place / "out.parquet"
    with watch:
        session.register_parquet("rows", source)
        sorted_rows = session.sql("SELECT * FROM rows ORDER BY key, sort")
        if is_like_ours:
            write_like_ours(sorted_rows, output)
        else:
            write_raw(sorted_rows, output, use_sleeper_settings=False)
    files = sorted(output.iterdir()) if output.is_dir() else [output]
    check_rows(files, sorted(Path(source).iterdir()), rows)
    shutil.rmtree(place)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
