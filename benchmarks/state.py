"""State: a table of a million file references over a hundred thousand leaves."""

import random
import shutil
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from obstore.store import LocalStore

from benchmarks.measuring import Task, Watch, peaks_mib, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.clock import system_clock
from sleeper.compaction.strategy import FileSize, StrategySettings, size_ratio_groups
from sleeper.files import DataFile, new_data_path
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import Partition, tree_from_split_points
from sleeper.partitions.region import key_region
from sleeper.schema.model import schema_to_json
from sleeper.statestore.database import Database
from sleeper.statestore.fold import Fold
from sleeper.statestore.fold_tables import FOLD_FORMAT_VERSION
from sleeper.statestore.rows import insert_file
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.table_definition import InitialiseTable

ROWS = 1_000_000
_REFERENCES_PER_LEAF = 10
_LOOKUPS = 1_000
_OPEN_SECONDS_PER_REFERENCE = 1e-6


def measure(settings: Settings) -> Result:
    references = settings.rows or ROWS
    place = settings.folder / f"state-{references}-{FOLD_FORMAT_VERSION}"
    if not (place / "done").exists():
        _build(place, references)
        (place / "done").touch()
    arguments = {"place": str(place), "folder": str(settings.folder / "state")}
    task = Task(__name__, "ours", {**arguments, "references": references})
    runs = run_by_turns({"state": task}, settings.repeats)["state"]

    def values_of_key(key: str) -> list[float]:
        return [run.answer[key] for run in runs]

    open_aim = Aim(max(1.0, references * _OPEN_SECONDS_PER_REFERENCE), is_most=True)
    figures = (
        figure("open from a snapshot", values_of_key("open_seconds"), "s", open_aim),
        figure("plan a point query, p50", values_of_key("plan_p50"), "ms", Aim(2, is_most=True)),
        figure("plan a point query, p99", values_of_key("plan_p99"), "ms"),
        figure(
            "plan all compactions", values_of_key("compactions_seconds"), "s", Aim(5, is_most=True)
        ),
        figure("peak", peaks_mib(runs), "MiB", Aim(300, is_most=True)),
        figure("snapshot", values_of_key("snapshot_mib"), "MiB"),
    )
    work = (
        f"{references:,} file references over {references // _REFERENCES_PER_LEAF:,} leaves. Open:"
        " the newest snapshot is fetched from the object store, checked, unpacked and put in"
        " place. Plan a query: the leaves of a key and the files of each. Plan compactions: the"
        " size-ratio strategy over every leaf."
    )
    return Result("state", work, figures)


def ours(watch: Watch, place: str, folder: str, references: int) -> dict[str, Any]:
    home = Path(folder)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    choice = random.Random(3)
    keys = ["".join(choice.choices("abcdefghijklmnopqrstuvwxyz", k=10)) for _ in range(_LOOKUPS)]
    with watch:
        start = time.perf_counter()
        SnapshotStore(LocalStore(Path(place)), "table").install_newest(home / "state.db")
        state = open_state_store(home / "state.db")
        with state.reading(stale=True) as now:
            version = now.number
        open_seconds = time.perf_counter() - start
        plans, count = [], 0
        for key in keys:
            start = time.perf_counter()
            region = key_region(SCHEMA, (key,))
            with state.reading(stale=True) as now:
                for leaf in now.partitions.leaves_overlapping([region]):
                    count += len(now.files.leaf_files(leaf.id, region))
            plans.append(time.perf_counter() - start)
        start = time.perf_counter()
        jobs = seen = 0
        with state.reading(stale=True) as now:
            for _, files in now.files.leaf_references():
                seen += len(files)
                sizes = [FileSize(f.path, f.rows) for f in files if f.job_id is None]
                jobs += len(size_ratio_groups(sizes, StrategySettings()))
        compactions_seconds = time.perf_counter() - start
    check(version > 1, f"the state was opened at version {version}")
    check(count == _LOOKUPS * _REFERENCES_PER_LEAF, f"{count} files for {_LOOKUPS} keys")
    check(seen == references, f"{seen} references of {references}")
    check(jobs == references // _REFERENCES_PER_LEAF, f"{jobs} jobs")
    state.close()
    shutil.rmtree(home)
    snapshot = next(Path(place).glob("table/snapshots/*"))
    cuts = quantiles(plans, n=100)
    return {
        "open_seconds": open_seconds,
        "plan_p50": cuts[49] * 1000,
        "plan_p99": cuts[98] * 1000,
        "compactions_seconds": compactions_seconds,
        "snapshot_mib": snapshot.stat().st_size / 2**20,
    }


def _build(place: Path, references: int) -> None:
    """The state as its transactions would leave it, and a snapshot of it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    steps = 26**5
    count = references // _REFERENCES_PER_LEAF
    cuts = [step * steps // count for step in range(1, count)]
    points = ["".join(chr(97 + cut // 26**i % 26) for i in (4, 3, 2, 1, 0)) for cut in cuts]
    tree = tree_from_split_points(SCHEMA, points)
    state = open_state_store(place / "state.db", objects=LocalStore(place), table_id="table")
    state.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tuple(tree)))
    leaves = [p for p in tree if p.is_leaf]
    # Past the transactions, whose validation would take minutes. The number that the rows are
    # given is the next one, which an empty job then takes.
    with Database(place / "state.db").writing() as connection:
        fold = Fold(connection)
        keys = dict(connection.execute("SELECT id, key FROM partitions"))
        for leaf in leaves:
            for number in range(_REFERENCES_PER_LEAF):
                file = _new_file(leaf, number)
                insert_file(fold, file, (2, 2), 2, [(keys[leaf.id], file.rows)])
    state.commit_or_raise(AddFiles("job", system_clock(), ()))
    state.save_snapshot()
    state.close()


def _new_file(leaf: Partition, number: int) -> DataFile:
    within = leaf.region.ranges[0]
    low = str(within.min)
    path = new_data_path("0a0b0c0d", leaf.id, system_clock())
    # The bounds cover the whole leaf, so that they exclude nothing from a plan.
    high = "~" if within.max is None else _just_below(str(within.max))
    rows = 10_000 + number
    return DataFile(path, rows, 20 * rows, (low,), (high,))


def _just_below(value: str) -> str:
    return value[:-1] + chr(ord(value[-1]) - 1) + "zzzzz"
