"""Measures the state store: commits per second, and a state of many references.

`python benchmarks/state_store.py commits [PROCESSES] [COMMITS EACH]`
`python benchmarks/state_store.py state [LEAVES] [FILES PER LEAF]`
One JSON row per figure on standard output.
"""

import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import TypeVar

import psutil
from obstore.store import LocalStore

from sleeper.clock import system_clock
from sleeper.files.data_file import DataFile, new_data_path
from sleeper.local.state_store import open_state_store
from sleeper.local.transaction_log import SqliteTransactionLog
from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition, tree_from_split_points
from sleeper.partitions.region import key_region
from sleeper.schema.json import schema_to_json
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.database import Database
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.initialise_table import InitialiseTable

SCHEMA = Schema((Field("key", PrimitiveType.LONG),))
KEYS_PER_LEAF = 1_000
FILES_PER_COMMIT = 5_000
TABLE_ID = "3f2a9c1b4d5e"

R = TypeVar("R")


def report(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def measure_fsync(folder: Path) -> float:
    """Microseconds of one synchronised write of a page."""
    file = os.open(folder / "fsync", os.O_WRONLY | os.O_CREAT)
    begun = time.perf_counter()
    for _ in range(500):
        os.pwrite(file, bytes(4096), 0)
        os.fdatasync(file)
    os.close(file)
    return (time.perf_counter() - begun) / 500 * 1e6


def ingest_of(files: list[NewFile]) -> AddFiles:
    return AddFiles(uuid.uuid4().hex, system_clock(), tuple(files))


def new_file(partition: Partition) -> NewFile:
    low = max(partition.region.ranges[0].min, 0)
    path = new_data_path(TABLE_ID, partition.id, system_clock())
    file = DataFile(path, 10, 1000, (low,), (low + 9,), sidecars=(".sketches", ".filter"))
    return NewFile(file, ((partition.id, 10),))


def commit_many(path: Path, count: int, ready: object, go: object) -> None:
    store = open_state_store(path)
    root = Partition(ROOT_PARTITION_ID, key_region(SCHEMA, (0,)))
    ready.release()  # type: ignore[attr-defined]
    go.wait()  # type: ignore[attr-defined]
    for _ in range(count):
        store.commit_or_raise(ingest_of([new_file(root)]))


def measure_commits(folder: Path, processes: int, count: int) -> None:
    store = open_state_store(folder / "state.db")
    tree = tuple(tree_from_split_points(SCHEMA, []))
    store.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree))
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    arguments = (folder / "state.db", count, ready, go)
    workers = [context.Process(target=commit_many, args=arguments) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    begun = time.perf_counter()
    go.set()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begun
    with store.reading() as state:
        assert state.number == 1 + processes * count
    report(
        figure="commits",
        processes=processes,
        commits_per_second=round(processes * count / seconds),
        fsync_microseconds=round(measure_fsync(folder)),
    )


def timed(name: str, action: Callable[[], R]) -> R:
    begun = time.perf_counter()
    result = action()
    report(figure=name, seconds=round(time.perf_counter() - begun, 3))
    return result


def measure_state(folder: Path, leaf_count: int, files_per_leaf: int) -> None:
    objects = LocalStore(str(folder))
    store = open_state_store(folder / "state.db", objects=objects, table_id=TABLE_ID)
    points = [i * KEYS_PER_LEAF for i in range(1, leaf_count)]
    tree = tuple(tree_from_split_points(SCHEMA, points))
    store.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree))
    leaves = [p for p in tree if p.is_leaf]
    for _ in range(files_per_leaf):
        for i in range(0, leaf_count, FILES_PER_COMMIT):
            files = [new_file(leaf) for leaf in leaves[i : i + FILES_PER_COMMIT]]
            store.commit_or_raise(ingest_of(files))
    timed("save a snapshot", store.save_snapshot)
    # a process of its own, so that its memory is the copy's alone
    arguments = (folder, leaf_count, files_per_leaf)
    worker = multiprocessing.get_context("spawn").Process(target=measure_copy, args=arguments)
    worker.start()
    worker.join()
    assert worker.exitcode == 0


def measure_copy(folder: Path, leaf_count: int, files_per_leaf: int) -> None:
    objects = LocalStore(str(folder))
    log = SqliteTransactionLog(Database(folder / "state.db"))

    def open_copy() -> StateStore:
        snapshots = SnapshotStore(objects, TABLE_ID)
        database = Database(folder / "copy.db", durable=False)
        copy = StateStore(database, log, snapshots=snapshots)
        with copy.reading() as state:
            state.partitions.get(ROOT_PARTITION_ID)
        return copy

    copy = timed("open from a snapshot", open_copy)
    with copy.reading() as state:
        seconds = []
        for _ in range(1_000):
            region = key_region(SCHEMA, (random.randrange(leaf_count * KEYS_PER_LEAF),))
            begun = time.perf_counter()
            (leaf,) = state.partitions.leaves_overlapping([region])
            state.files.of_leaf(leaf.id, region)
            seconds.append(time.perf_counter() - begun)
        percentiles = quantiles(seconds, n=100)
        report(
            figure="plan a point query",
            p50_ms=round(percentiles[49] * 1e3, 3),
            p99_ms=round(percentiles[98] * 1e3, 3),
        )
        timed("all references by leaf", lambda: sum(len(f) for _, f in state.files.by_leaf()))
        timed("rows of all leaves", lambda: sum(1 for _ in state.partitions.leaf_rows()))
    report(
        figure="size",
        references=leaf_count * files_per_leaf,
        disk_mb=round((folder / "copy.db").stat().st_size / 1e6),
        resident_mb=round(psutil.Process().memory_info().rss / 1e6),
    )


def main(what: str, *numbers: str) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        if what == "commits":
            processes, count = (*map(int, numbers), *(8, 1000)[len(numbers) :])
            measure_commits(Path(folder), processes, count)
        else:
            leaf_count, files_per_leaf = (*map(int, numbers), *(100_000, 10)[len(numbers) :])
            measure_state(Path(folder), leaf_count, files_per_leaf)


if __name__ == "__main__":
    main(*sys.argv[1:])
