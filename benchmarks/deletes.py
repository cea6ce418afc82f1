"""Deletes of keys: the job, its commit, and reads while the deletes are outstanding."""

import random
import shutil
from collections.abc import Callable
from time import perf_counter

import pyarrow as pa

from benchmarks.result import Aim, Figure, Result, check, figure, ratios
from benchmarks.rows import random_rows
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.deletion.keys import delete_key_rows
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.region import key_region
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.delete_rows import DeleteRows

ROWS = 10_000_000
_NAME = "rows"
_FEW = 1_000
_MANY_SHARE = 10
_LOOKUPS = 50


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    many = max(rows // _MANY_SHARE, 1)
    place = settings.folder / "deletes"
    shutil.rmtree(place, ignore_errors=True)
    create_local_instance(place, "deletes")
    instance = open_local_instance(place)
    try:
        figures = _measure(instance, rows, many, settings.repeats)
    finally:
        instance.close()
        shutil.rmtree(place)
    work = (
        f"{rows:,} rows with random keys of ten letters in one file. {_FEW:,} keys are deleted, "
        f"then {many:,} keys as one job; reads while the deletes are outstanding."
    )
    return Result("deletes", work, tuple(figures))


def _measure(instance: Instance, rows: int, many: int, repeats: int) -> list[Figure]:
    create_table(instance, _NAME, schema_to_json(SCHEMA))
    content = random_rows(rows, 1)
    ingest_rows(instance, _NAME, content.to_batches(), "ingest")
    chosen = random.Random(2)
    keys = pa.table({"key": content["key"].take(chosen.sample(range(rows), many))})
    few = [key_region(SCHEMA, [key]) for key in keys["key"].to_pylist()[:_FEW]]
    present = content["key"][0].as_py()
    scans, lookups = [], []

    def read(count: int) -> None:
        scans.append(_times(lambda: _scan(instance, count), repeats))
        lookups.append(_times(lambda: _look_up(instance, present), repeats))

    read(rows)
    commits = []
    for number in range(repeats):
        delete = DeleteRows(tuple(few), id=f"few-{number}")
        start = perf_counter()
        instance.table(_NAME).state.commit_or_raise(delete)
        commits.append(1000 * (perf_counter() - start))
    deleted = set(keys["key"].to_pylist()[:_FEW])
    read(rows - len(deleted))
    jobs = []
    for number in range(repeats):
        start = perf_counter()
        delete_key_rows(instance, _NAME, keys.to_batches(), delete_id=f"many-{number}")
        jobs.append(perf_counter() - start)
        if number == 0:
            read(rows - len(set(keys["key"].to_pylist())))
    return [
        figure(f"job of {many:,} keys", jobs, "s", Aim(10, is_most=True)),
        figure(f"commit of {_FEW:,} keys as regions", commits, "ms"),
        figure("scan", [rows / seconds / 1e6 for seconds in scans[0]], "M rows/s"),
        figure(f"scan with {_FEW:,}", ratios(scans[1], scans[0]), "×", Aim(1.3, is_most=True)),
        figure(f"scan with {many:,}", ratios(scans[2], scans[0]), "×", Aim(1.3, is_most=True)),
        figure("lookup", [1000 * seconds / _LOOKUPS for seconds in lookups[0]], "ms"),
        figure(
            f"lookup with {_FEW:,}", ratios(lookups[1], lookups[0]), "×", Aim(1.2, is_most=True)
        ),
        figure(
            f"lookup with {many:,}", ratios(lookups[2], lookups[0]), "×", Aim(1.2, is_most=True)
        ),
    ]


def _times(work: Callable[[], object], repeats: int) -> list[float]:
    """Returns the time of each run, in seconds, after one that is not measured."""
    work()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return times


def _scan(instance: Instance, expected: int) -> None:
    count = sum(batch.num_rows for batch in open_query(instance, _NAME, Query()))
    check(count == expected, f"a scan returned {count:,} rows of {expected:,}")


def _look_up(instance: Instance, key: str) -> None:
    query = Query((key_region(SCHEMA, [key]),))
    for _ in range(_LOOKUPS):
        for _batch in open_query(instance, _NAME, query):
            pass
