"""Compaction of eleven sorted files into one, with its commit, and memory by input size."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datafusion import col

from benchmarks.measuring import Task, Watch, peaks_mib, rates, run_by_turns
from benchmarks.raw import open_raw_session, write_raw
from benchmarks.result import Aim, CheckFailedError, Result, check, figure, ratios
from benchmarks.rows import check_rows, describe, sorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.clock import system_clock
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.remote.extracts import fetch_inputs
from sleeper.datafiles.write.merged import write_merge
from sleeper.datafiles.write.partitioned import WriteTarget
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import ROOT_PARTITION_ID, tree_from_split_points
from sleeper.properties.instance import MERGE_MEMORY_BYTES
from sleeper.schema.model import schema_to_json
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    JobAssignment,
)
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot

ROWS = 44_000_000
FILES = 11
_GROWTH = 4


def measure(settings: Settings) -> Result:
    rows_each = (settings.rows or ROWS) // FILES
    big, small = (
        sorted_inputs(settings.folder, rows_each),
        sorted_inputs(settings.folder, rows_each // _GROWTH),
    )
    tasks = {
        "ours": Task(__name__, "ours", big),
        "raw": Task(__name__, "raw", {**big, "use_sleeper_settings": True}),
        "raw, its own settings": Task(__name__, "raw", {**big, "use_sleeper_settings": False}),
        "ours, a quarter": Task(__name__, "ours", small),
    }
    runs = run_by_turns(tasks, settings.repeats)
    rows = rows_each * FILES
    speed = {name: rates(rows, runs[name]) for name in tasks if name != "ours, a quarter"}
    peaks = {name: peaks_mib(results) for name, results in runs.items()}
    figures = [
        figure("ours, of raw", ratios(speed["ours"], speed["raw"]), "×", Aim(1.0)),
        figure(
            "ours, of raw with its own settings",
            ratios(speed["ours"], speed["raw, its own settings"]),
            "×",
        ),
        figure(
            f"peak at {_GROWTH} × the rows",
            ratios(peaks["ours"], peaks["ours, a quarter"]),
            "×",
            Aim(1.2, is_most=True),
        ),
    ]
    figures += [figure(name, results, "M rows/s") for name, results in speed.items()]
    figures += [figure(f"{name}, peak", results, "MiB") for name, results in peaks.items()]
    work = (
        f"{FILES} sorted files of {rows_each:,} rows → 1 with its sketch and key filter, committed;"
        " raw DataFusion merges its declared sorted inputs and writes one file with plain"
        " encodings, without a sync or a commit."
        f" A quarter is {FILES} files of {rows_each // _GROWTH:,} rows."
    )
    return Result("compaction", work, tuple(figures))


def ours(watch: Watch, root: str, paths: list[str], folder: str) -> dict[str, Any]:
    inputs, place = Path(root), Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    spill = place / "spill"
    spill.mkdir(parents=True)
    files = [describe(inputs, path) for path in paths]
    state = open_state_store(place / "state.db")
    run_start_ms = system_clock()
    _assign(state, [NewFile(f, ((ROOT_PARTITION_ID, f.rows),)) for f in files], run_start_ms)
    engine = EngineSettings(spill, memory_bytes=MERGE_MEMORY_BYTES.default or 0)
    tree = tree_from_split_points(SCHEMA, [])
    target = WriteTarget(DataRoot(place / "data"), "0a0b0c0d", SCHEMA, tree, run_start_ms)
    request = MergeRequest(
        SCHEMA, tuple(MergeInput(str(inputs / f.path), bytes=f.bytes) for f in files)
    )
    with watch:
        expected = [(f, None) for f in files]
        with fetch_inputs(DataRoot(inputs), SCHEMA, expected, spill):  # verifies them
            output = write_merge(request, engine, target)
        if output is None:
            raise CheckFailedError("nothing was written")
        commit = CommitCompaction("job", ROOT_PARTITION_ID, tuple(paths), output, run_start_ms)
        state.commit_or_raise(commit)
    with state.reading() as now:
        check([f.path for f in now.files.all()] == [output.path], "it is not committed")
    check_rows(
        [place / "data" / output.path],
        [inputs / path for path in paths],
        sum(f.rows for f in files),
    )
    state.close()
    shutil.rmtree(place)
    return {"bytes": output.bytes}


def raw(
    watch: Watch, root: str, paths: list[str], folder: str, use_sleeper_settings: bool
) -> dict[str, Any]:
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    session = open_raw_session(place / "spill", MERGE_MEMORY_BYTES.default or 0, 1)
    # Told of the order, and not cut into ranges, DataFusion merges and does not sort.
    order = [col(name).sort(ascending=True, nulls_first=False) for name in ("key", "sort")]
    for number, path in enumerate(paths):
        session.register_parquet(f"t{number}", str(Path(root, path)), file_sort_order=[order])
    frame = session.table("t0")
    for number in range(1, len(paths)):
        frame = frame.union(session.table(f"t{number}"))
    frame = frame.sort(*order)
    plan = frame.execution_plan().display_indent()
    check("SortExec" not in plan, f"raw DataFusion would sort:\n{plan}")
    output = place / "out.parquet"
    with watch:
        write_raw(frame, output, use_sleeper_settings)
    inputs = [Path(root, path) for path in paths]
    files = sorted(output.iterdir()) if output.is_dir() else [output]
    check_rows(files, inputs, sum(pq.ParquetFile(p).metadata.num_rows for p in inputs))
    shutil.rmtree(place)
    return {}


def sorted_inputs(folder: Path, rows_each: int) -> dict[str, Any]:
    root, paths = sorted_files(folder, rows_each, FILES)
    return {"root": root.url_of(""), "paths": paths, "folder": str(folder / "compaction")}


def _assign(state: StateStore, files: list[NewFile], run_start_ms: int) -> None:
    tree = tuple(tree_from_split_points(SCHEMA, []))
    state.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree))
    state.commit_or_raise(AddFiles("inputs", run_start_ms, tuple(files)))
    paths = tuple(f.file.path for f in files)
    state.commit_or_raise(AssignFiles((JobAssignment("job", ROOT_PARTITION_ID, paths, 2**62),)))
