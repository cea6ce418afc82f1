"""Compaction that aggregates: rows of equal keys in eleven sorted files become one each."""

import shutil
from pathlib import Path
from typing import Any

from benchmarks.beside import MEMORY_BYTES, PEERS_DIFFER, THREADS, merges_beside, peer_merge
from benchmarks.measuring import Task, Watch, peaks_mib, run_by_turns
from benchmarks.peers.environment import CHDB, DUCKDB, installed
from benchmarks.repeated_rows import (
    AGGREGATIONS,
    REPEATED_SCHEMA,
    REPEATS,
    RepeatedRows,
    check_aggregated,
    repeated_rows,
)
from benchmarks.result import OURS, Aim, Result, check, figure, ratios
from benchmarks.rows import describe
from benchmarks.settings import Settings
from sleeper.clock import system_clock
from sleeper.compaction.job import CompactionJob
from sleeper.compaction.run import CompactionSettings, run_compaction
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.local.database import InstanceDatabase
from sleeper.local.state_store import open_state_store
from sleeper.local.trackers import LocalJobTracker
from sleeper.partitions.partition import ROOT_PARTITION_ID, tree_from_split_points
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations, processing_to_json
from sleeper.schema.model import schema_to_json
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.compaction_jobs import AssignFiles, JobAssignment
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot
from sleeper.tables import TableId

ROWS = 11_000_000
_FILES = 11
_GROWTH = 4
_FOUR_TIMES = f"{OURS}, {_GROWTH} × the rows"
_TABLE = TableId("0a0b0c0d")
_LEASE_MS = 3_600_000


def measure(settings: Settings) -> Result:
    rows_each = (settings.rows or ROWS) // _FILES
    arguments = repeated_rows(settings.folder, rows_each, _FILES)
    bigger = repeated_rows(settings.folder, _GROWTH * rows_each, _FILES)
    peers = installed(settings.folder, (DUCKDB, CHDB))
    tasks = {OURS: _task(settings.folder, arguments), _FOUR_TIMES: _task(settings.folder, bigger)}
    inputs = [str(arguments.folder / path) for path in arguments.paths]
    for peer in peers:
        tasks[peer.label] = peer_merge(
            peer,
            "aggregate",
            inputs,
            settings.folder,
            lambda output: check_aggregated(output, arguments.expected),
        )
    runs = run_by_turns(tasks, max(1, settings.repeats - 1))
    of_bigger = runs.pop(_FOUR_TIMES)
    figures, comparisons = merges_beside(arguments.rows, runs, peers)
    growth = ratios(peaks_mib(of_bigger), peaks_mib(runs[OURS]))
    figures += [
        figure(f"peak at {_GROWTH} × the rows", growth, "×", Aim(1.2, is_most=True)),
        figure(
            f"at {_GROWTH} × the rows",
            [bigger.rows / r.seconds / 1e6 for r in of_bigger],
            "M rows/s",
        ),
    ]
    work = (
        f"{_FILES} sorted files of {rows_each:,} rows, of which {REPEATS} on average have the same"
        f" keys → 1 sorted file of {arguments.expected.groups:,} rows: {AGGREGATIONS} of longs."
    )
    return Result("aggregation", work, tuple(figures), tuple(comparisons), PEERS_DIFFER)


def ours(watch: Watch, root: str, paths: list[str], folder: str) -> None:
    inputs, place = Path(root), Path(folder)
    shutil.rmtree(inputs / _TABLE, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    spill = place / "spill"
    spill.mkdir(parents=True)
    # The table's data is beside its inputs; outputs are deleted afterwards.
    data = DataRoot(inputs)
    database = InstanceDatabase(place / "instance.db")
    database.create()
    state = open_state_store(place / "state.db")
    job = _job(state, inputs, paths)
    engine = EngineSettings(spill, memory_bytes=MEMORY_BYTES, threads=THREADS)
    with watch:
        result = run_compaction(
            job, state, data, LocalJobTracker(database), CompactionSettings(engine)
        )
    output = result.output
    check(output is not None, "no row came out")
    assert output is not None
    with state.reading() as now:
        check([f.path for f in now.files.all()] == [output.path], "it is not committed")
    check_aggregated(inputs / output.path, RepeatedRows(inputs, (), 0).expected)
    state.close()
    shutil.rmtree(inputs / _TABLE)
    shutil.rmtree(place)


def _job(state: StateStore, inputs: Path, paths: list[str]) -> CompactionJob:
    """A table that aggregates, with all these files in one leaf, and the job that has them."""
    now = system_clock()
    processing = processing_to_json(Processing((), parse_aggregations(AGGREGATIONS)))
    tree = tuple(tree_from_split_points(REPEATED_SCHEMA, []))
    state.commit_or_raise(InitialiseTable(schema_to_json(REPEATED_SCHEMA), tree, processing))
    files = [describe(inputs, path) for path in paths]
    additions = tuple(NewFile(file, ((ROOT_PARTITION_ID, file.rows),)) for file in files)
    state.commit_or_raise(AddFiles("inputs", now, additions))
    claim = JobAssignment("job", ROOT_PARTITION_ID, tuple(paths), now + _LEASE_MS)
    state.commit_or_raise(AssignFiles((claim,)))
    return CompactionJob("job", _TABLE, ROOT_PARTITION_ID, tuple(paths), created_ms=now)


def _task(folder: Path, repeated_rows: RepeatedRows) -> Task:
    arguments: dict[str, Any] = {
        "root": str(repeated_rows.folder),
        "paths": list(repeated_rows.paths),
        "folder": str(folder / "aggregation"),
    }
    return Task(__name__, "ours", arguments)
