"""Commits: how many validated and fully synchronised transactions a second."""

import itertools
import multiprocessing
import os
import shutil
import threading
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.clock import system_clock
from sleeper.files import DataFile, new_data_path
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import ROOT_PARTITION_ID, tree_from_split_points
from sleeper.schema.model import schema_to_json
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.table_definition import InitialiseTable

_WRITERS = 8
_TABLES = 100
_COMMITS = 8_000
_SYNCS = 200
_SHAPES = {"processes": 1, "threads": 1, "tables": _TABLES}


def measure(settings: Settings) -> Result:
    commits = settings.rows or _COMMITS
    tasks = {
        shape: Task(
            __name__,
            "ours",
            {
                "folder": str(settings.folder / "commits"),
                "commits": commits,
                "tables": tables,
                "with_threads": shape == "threads",
            },
        )
        for shape, tables in _SHAPES.items()
    }
    runs = run_by_turns(tasks, settings.repeats)
    rate = {name: [commits / r.seconds for r in results] for name, results in runs.items()}
    syncs = [r.answer["sync_ms"] for results in runs.values() for r in results]
    figures = (
        figure(f"{_WRITERS} processes, one table", rate["processes"], "/s", Aim(4000)),
        figure(f"{_WRITERS} threads, one table", rate["threads"], "/s"),
        figure(f"{_WRITERS} processes, {_TABLES} tables", rate["tables"], "/s", Aim(2000)),
        figure("fsync of 4 KiB", syncs, "ms"),
    )
    work = (
        f"{commits:,} transactions, each of which adds a file with a reference: validated,"
        " logged and folded, and on disk before the commit returns. Threads and processes"
        " share the synchronisation of those that wait together."
    )
    return Result("commits", work, figures)


def ours(
    watch: Watch, folder: str, commits: int, tables: int, with_threads: bool
) -> dict[str, Any]:
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    paths = [place / f"{number}.db" for number in range(tables)]
    tree = tuple(tree_from_split_points(SCHEMA, []))
    for path in paths:
        state = open_state_store(path)
        state.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree))
        state.close()
    sync_ms = _sync_seconds(place) * 1000
    commits_per_writer = commits // _WRITERS
    if with_threads:
        _with_threads(watch, paths, commits_per_writer)
    else:
        _with_processes(watch, paths, commits_per_writer)
    count = 0
    for path in paths:
        state = open_state_store(path)
        with state.reading() as now:
            count += now.files.totals().references
        state.close()
    check(
        count == commits_per_writer * _WRITERS,
        f"{count} files were committed of {commits_per_writer * _WRITERS}",
    )
    shutil.rmtree(place)
    return {"sync_ms": sync_ms}


def _with_threads(watch: Watch, paths: list[Path], commits_per_writer: int) -> None:
    state = open_state_store(paths[0])
    writers = [
        threading.Thread(target=_commit, args=([state], commits_per_writer))
        for _ in range(_WRITERS)
    ]
    with watch:
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    state.close()


def _with_processes(watch: Watch, paths: list[Path], commits_per_writer: int) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(_WRITERS + 1)
    writers = [
        context.Process(target=_write_when_all_are_ready, args=(paths, commits_per_writer, ready))
        for _ in range(_WRITERS)
    ]
    for writer in writers:
        writer.start()
    ready.wait(timeout=120)
    with watch:
        ready.wait(timeout=600)
    for writer in writers:
        writer.join()


def _write_when_all_are_ready(paths: list[Path], commits_per_writer: int, ready: Any) -> None:
    states = [open_state_store(path) for path in paths]
    ready.wait(timeout=120)
    _commit(states, commits_per_writer)
    ready.wait(timeout=600)


def _commit(states: list[StateStore], commits: int) -> None:
    for _, state in zip(range(commits), itertools.cycle(states), strict=False):
        start_ms = system_clock()
        path = new_data_path("0a0b0c0d", ROOT_PARTITION_ID, start_ms)
        file = DataFile(path, 1000, 20_000, ("a",), ("z",))
        new = NewFile(file, ((ROOT_PARTITION_ID, file.rows),))
        state.commit_or_raise(AddFiles(uuid.uuid4().hex, start_ms, (new,)))


def _sync_seconds(folder: Path) -> float:
    results = []
    with (folder / "sync").open("wb") as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            results.append(time.perf_counter() - start)
    return median(results)
