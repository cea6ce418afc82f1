"""Reads of a snapshot table: beside an ordinary table, and while others load."""

import multiprocessing
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import pyarrow.dataset as ds

from benchmarks.measuring import Task, Watch, run
from benchmarks.result import (
    Aim,
    Figure,
    check,
    figure,
)
from benchmarks.rows import random_rows, unsorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from benchmarks.snapshot_loads import (
    FEW_ROWS,
    NAME,
    SNAPSHOT,
    count_rows,
    ingest_paths,
    new_instance,
    opened,
)
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.partitions.region import key_region
from sleeper.query.request import Query, make_range_region
from sleeper.query.service import open_query
from sleeper.schema.model import schema_to_json

_LOOKUPS = 200
_READS = 1_500
_OTHER = "other"
_CONTEXT: Any = multiprocessing.get_context("spawn")
PERIOD_SECONDS = 0.2


def measure_reads(settings: Settings, rows: int) -> list[Figure]:
    source = str(unsorted_files(settings.folder, rows))
    home = str(settings.folder / "snapshots")
    answers = [
        run(Task(__name__, function, {"source": source, "home": home})).answer
        for function in ("compare_reads", "read_during_load")
    ]
    busy = run(Task(__name__, "read_during_publications", {"home": home})).answer
    most = Aim(1.2, is_most=True)
    return [
        figure("scan, of an ordinary table", answers[0]["scan"], "×", most),
        figure("range of a 26th, of an ordinary table", answers[0]["range"], "×", most),
        figure("lookup, of an ordinary table", answers[0]["lookup"], "×", most),
        figure("lookup, p99", busy["lookup_ms"], "ms"),
        figure("lookup during publications, p99, of without", busy["lookup"], "×", most),
        figure("small scan, p99", busy["scan_ms"], "ms"),
        figure("small scan during publications, p99, of without", busy["scan"], "×", most),
        figure("publications meanwhile", busy["rate"], "/s"),
        figure("lookup during a load, p99, of without", answers[1]["load"], "×"),
        figure(
            "lookup during a load, p99, of during an ingest elsewhere",
            answers[1]["publication"],
            "×",
            most,
        ),
    ]


def compare_reads(watch: Watch, source: str, home: str) -> dict[str, list[float]]:
    """Returns ratios of the times of reads of a snapshot table and of an ordinary one, by turns."""
    keys = _some_keys(source, _LOOKUPS)
    found: dict[str, list[float]] = {"scan": [], "range": [], "lookup": []}
    with new_instance(home) as instance, watch:
        names = ("ordinary", "snapshot")
        for name, properties in zip(names, ({}, SNAPSHOT), strict=True):
            create_table(instance, name, schema_to_json(SCHEMA), properties)
        few = random_rows(FEW_ROWS, 1).to_batches()
        ingest_rows(instance, "snapshot", few, "before")
        for name in names:
            ingest_paths(instance, source, "load", name=name)
        for turn in range(4):
            by_scan = [_repeated(partial(count_rows, instance, name)) for name in names]
            by_range = [_repeated(partial(_read_range, instance, name)) for name in names]
            by_key = [median(_time_lookups(instance, keys, name)) for name in names]
            if turn:  # the first turn fills the caches
                times = {"scan": by_scan, "range": by_range, "lookup": by_key}
                for what, (ordinary, snapshot) in times.items():
                    found[what].append(snapshot / ordinary)
    return found


def read_during_publications(watch: Watch, home: str, turns: int = 3) -> dict[str, list[float]]:
    """Returns the 99th percentiles of reads without publications, and ratios of those with them."""
    found: dict[str, list[float]] = {name: [] for name in ("lookup", "scan", "rate")}
    found |= {"lookup_ms": [], "scan_ms": []}
    content = random_rows(FEW_ROWS, 1)
    keys = random.Random(3).choices(content["key"].to_pylist(), k=_READS)
    with new_instance(home) as instance, watch:
        create_table(instance, NAME, schema_to_json(SCHEMA), SNAPSHOT)
        ingest_rows(instance, NAME, content.to_batches(), "before")

        def read() -> tuple[float, float]:
            lookups = _time_lookups(instance, keys)
            scans = [_timed(lambda: _check_whole(instance)) for _ in range(_READS // 5)]
            return _p99(lookups), _p99(scans)

        read()
        for _ in range(turns):
            quiet = read()
            start, before = perf_counter(), _count_versions(instance)
            with _publishing(home, publish_often):
                busy = read()
            published = _count_versions(instance) - before
            found["rate"].append(published / (perf_counter() - start))
            for name, without, during in zip(("lookup", "scan"), quiet, busy, strict=True):
                found[f"{name}_ms"].append(1000 * without)
                found[name].append(during / without)
    return found


def read_during_load(
    watch: Watch, source: str, home: str, turns: int = 3
) -> dict[str, list[float]]:
    """Returns ratios of the 99th percentiles of lookups while others write.

    `load` is during loads of the table, over without. `publication` is during these, over during
    ingests of the same rows into another table, which take as much of the processors.
    """
    found: dict[str, list[float]] = {"load": [], "publication": []}
    keys = _some_keys(source, _READS)
    with new_instance(home) as instance, watch:
        create_table(instance, NAME, schema_to_json(SCHEMA), SNAPSHOT)
        create_table(instance, _OTHER, schema_to_json(SCHEMA))
        ingest_paths(instance, source, "before")
        _time_lookups(instance, keys)
        for _ in range(turns):
            quiet = _p99(_time_lookups(instance, keys))
            busy = {}
            for name in (NAME, _OTHER):
                with _publishing(home, load_again, source, name):
                    busy[name] = _p99(_time_lookups(instance, keys))
            found["load"].append(busy[NAME] / quiet)
            found["publication"].append(busy[NAME] / busy[_OTHER])
    return found


@contextmanager
def _publishing(home: str, publish: Callable[..., None], *arguments: str) -> Iterator[None]:
    """Another process publishes versions, from its first on, until the context ends."""
    ready, end = _CONTEXT.Event(), _CONTEXT.Event()
    process = _CONTEXT.Process(target=publish, args=(home, ready, end, *arguments))
    process.start()
    try:
        check(ready.wait(60), "no process publishes")
        yield
        check(process.is_alive(), "the publishing process has ended")
    finally:
        end.set()
        process.join()


def publish_often(home: str, ready: Any, end: Any) -> None:
    with opened(home) as instance:
        batches = random_rows(FEW_ROWS, 1).to_batches()
        while not end.wait(PERIOD_SECONDS):
            ingest_rows(instance, NAME, batches)
            ready.set()


def load_again(home: str, ready: Any, end: Any, source: str, name: str) -> None:
    with opened(home) as instance:
        ready.set()
        while not end.is_set():
            ingest_paths(instance, source, uuid.uuid4().hex, name=name)


def _count_versions(instance: Instance) -> int:
    """Returns the number of versions. None expires meanwhile, because nothing collects garbage."""
    with instance.table(NAME).state.reading() as now:
        return len(now.snapshots.versions())


def _check_whole(instance: Instance) -> None:
    count = count_rows(instance)
    check(count == FEW_ROWS, f"a scan returned {count:,} rows of {FEW_ROWS:,}")


def _read_range(instance: Instance, name: str) -> None:
    """Reads the keys of one first letter."""
    query = Query((make_range_region(SCHEMA, "m", "n"),))
    check(sum(b.num_rows for b in open_query(instance, name, query)) > 0, "the range is empty")


def _time_lookups(instance: Instance, keys: Sequence[str], name: str = NAME) -> list[float]:
    def look_up(key: str) -> None:
        count = sum(b.num_rows for b in open_query(instance, name, _by_key(key)))
        check(count > 0, f"key {key} is missing")

    return [_timed(partial(look_up, key)) for key in keys]


def _by_key(key: str) -> Query:
    return Query((key_region(SCHEMA, [key]),))


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _repeated(work: Callable[[], object]) -> float:
    return median(_timed(work) for _ in range(3))


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100)[98]


def _some_keys(source: str, count: int) -> list[str]:
    keys = ds.dataset(source).head(count * 10, columns=["key"])["key"]
    return random.Random(3).choices(keys.to_pylist(), k=count)
