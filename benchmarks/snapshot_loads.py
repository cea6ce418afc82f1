"""Loads of a snapshot table: their rate beside ingests and peers, and their commits alone."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.measuring import Measured, Task, Watch, peaks_mib, rates, run, run_by_turns
from benchmarks.peers.environment import DELTA, DUCKDB, LANCE, installed
from benchmarks.result import OURS, Aim, Comparison, Figure, check, comparison, figure, ratios
from benchmarks.rows import even_leaves, random_rows, unsorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.files import DataFile, new_data_path
from sleeper.ingest.run import ingest_files
from sleeper.ingest.service import ingest_rows, ingest_table
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.local.state_store import open_state_store
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.snapshot_loads import BeginLoad, PublishSnapshot
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Outcome

NAME = "rows"
SNAPSHOT = {"sleeper.table.type": "snapshot", "sleeper.table.snapshot.min.versions": "20"}
FEW_ROWS = 10_000
_VERSIONS = 20
_LEAVES = (1, 1_000, 10_000)
_THREADS = 2


def measure_refresh(settings: Settings, rows: int) -> tuple[list[Figure], list[Comparison]]:
    arguments = {
        "source": str(unsorted_files(settings.folder, rows)),
        "home": str(settings.folder / "snapshots"),
        "rows": rows,
    }
    tasks = {
        OURS: Task(__name__, "load", {**arguments, "properties": SNAPSHOT}),
        "ingest": Task(__name__, "load", {**arguments, "properties": {}}),
    }
    for peer in installed(settings.folder, (DUCKDB, DELTA, LANCE)):
        more = {**arguments, "threads": _THREADS}
        tasks[peer.label] = peer.task("overwrite", more, _check_count(rows))
        if peer.peer is DUCKDB:
            sorted_too = {**more, "is_sorted": True}
            tasks[f"{peer.label}, sorted"] = peer.task("overwrite", sorted_too, _check_count(rows))
    runs = run_by_turns(tasks, settings.repeats)
    ingests = runs.pop("ingest")
    speed = {who: rates(rows, each) for who, each in runs.items()}
    size = f"{rows:,} rows"
    figures = [
        figure(f"load of {size}", speed[OURS], "M rows/s"),
        figure(
            f"load of {size}, of an ingest",
            ratios(speed[OURS], rates(rows, ingests)),
            "×",
            Aim(0.9),
        ),
    ]
    return figures, [
        comparison(size, {who: [r.seconds for r in each] for who, each in runs.items()}, "s"),
        comparison("peak", {who: peaks_mib(each) for who, each in runs.items()}, "MiB"),
    ]


def _check_count(rows: int) -> Callable[[Measured], None]:
    def compare(measured: Measured) -> None:
        check(measured.answer["rows"] == rows, f"{measured.answer['rows']} rows of {rows}")

    return compare


def load(watch: Watch, source: str, home: str, rows: int, properties: dict[str, str]) -> None:
    """Ingests into a table that has rows: a load if it is a snapshot table."""
    with new_instance(home) as instance:
        create_table(instance, NAME, schema_to_json(SCHEMA), properties)
        before = min(rows, FEW_ROWS)
        ingest_rows(instance, NAME, random_rows(before, 1).to_batches(), "before")
        with watch:
            ingest_paths(instance, source, "load")
        kept = 0 if properties else before
        count = count_rows(instance)
        check(count == rows + kept, f"{count:,} rows are in the table (expected {rows + kept:,})")


def measure_publication(settings: Settings, rows: int) -> list[Figure]:
    """Returns the times of commits by rows and by leaves, with few and many versions kept."""
    home = {"home": str(settings.folder / "snapshots")}
    figures = []
    for versions in (1, _VERSIONS):
        kept = "1 version kept" if versions == 1 else f"{versions} versions kept"
        arguments = {**home, "versions": versions}
        times = {}
        for count in (FEW_ROWS, rows):
            source = str(unsorted_files(settings.folder, count))
            task = Task(__name__, "publish_rows", {**arguments, "source": source})
            times[count] = [run(task).answer["ms"] for _ in range(settings.repeats)]
            figures.append(figure(f"publication of {count:,} rows, {kept}", times[count], "ms"))
        growth = ratios(times[rows], times[FEW_ROWS])
        what = f"publication of {rows:,} rows, of {FEW_ROWS:,}, {kept}"
        figures.append(figure(what, growth, "×", Aim(1.5, is_most=True)))
        for leaves in _LEAVES:
            task = Task(__name__, "publish_leaves", {**arguments, "leaves": leaves})
            found = [run(task).answer["ms"] for _ in range(settings.repeats)]
            noun = "leaf" if leaves == 1 else "leaves"
            figures.append(figure(f"publication, {leaves:,} {noun}, {kept}", found, "ms"))
    return figures


def publish_rows(watch: Watch, source: str, home: str, versions: int) -> dict[str, float]:
    """Returns the milliseconds of the commit of a load, after so many others."""
    seconds = []
    with new_instance(home) as instance:
        create_table(instance, NAME, schema_to_json(SCHEMA), SNAPSHOT)
        few = random_rows(FEW_ROWS, 1).to_batches()
        for number in range(versions):
            ingest_rows(instance, NAME, few, f"before-{number}")
        state = instance.table(NAME).state

        def commit(files: AddFiles) -> Outcome:
            start = perf_counter()
            (outcome,) = state.commit(files)
            seconds.append(perf_counter() - start)
            return outcome

        with watch:
            ingest_paths(instance, source, "load", commit)
        with state.reading() as now:
            kept = len(now.snapshots.versions())
    check(kept == versions + 1, f"{kept} versions are kept of {versions + 1}")
    return {"ms": 1000 * median(seconds)}


def publish_leaves(watch: Watch, home: str, leaves: int, versions: int) -> dict[str, float]:
    """Returns the milliseconds of the commit of a file that all leaves refer to."""
    place = _empty(Path(home))
    state = open_state_store(place / "state.db")
    tree = tuple(even_leaves(leaves))
    state.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree, table_type="snapshot"))
    parents = {partition.parent_id for partition in tree}
    ids = [partition.id for partition in tree if partition.id not in parents]
    check(len(ids) == leaves, f"{len(ids)} leaves of {leaves}")
    seconds = 0.0
    with watch:
        for _ in range(versions + 1):
            start_ms = system_clock()
            file = DataFile(
                new_data_path("0a0b0c0d", ids[0], start_ms), leaves, 1_000, ("",), ("zzzz",)
            )
            new = NewFile(file, tuple((leaf, 1) for leaf in ids))
            begun = state.commit_or_raise(BeginLoad()) or 0
            publication = PublishSnapshot(uuid.uuid4().hex, start_ms, (new,), begun=begun)
            start = perf_counter()
            state.commit_or_raise(publication)
            seconds = perf_counter() - start
    state.close()
    shutil.rmtree(place)
    return {"ms": 1000 * seconds}


def ingest_paths(
    instance: Instance,
    source: str,
    job_id: str,
    commit: Callable[[AddFiles], Outcome] | None = None,
    name: str = NAME,
) -> None:
    target = replace(ingest_table(instance.table(name)), commit=commit)
    ingest_files(target, job_id, sorted(Path(source).iterdir()), "request")


def count_rows(instance: Instance, name: str = NAME) -> int:
    return sum(batch.num_rows for batch in open_query(instance, name, Query()))


@contextmanager
def new_instance(home: str) -> Iterator[Instance]:
    """An instance that is deleted when the context ends."""
    place = _empty(Path(home))
    create_local_instance(place, "snapshots")
    with opened(home) as instance:
        yield instance
    shutil.rmtree(place)


@contextmanager
def opened(home: str) -> Iterator[Instance]:
    instance = open_local_instance(Path(home))
    try:
        yield instance
    finally:
        instance.close()


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
