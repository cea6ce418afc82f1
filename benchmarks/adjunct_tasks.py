"""The tasks of the benchmark of adjunct stores, each for a process of its own."""

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sleeper
from benchmarks.measuring import Watch
from benchmarks.result import check
from sleeper.adjunct import AdjunctStore
from sleeper.adjunct.versions.folder import StoreFolder

_SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}, {"name": "n", "type": "LongType"}],
}
_STRIDE = 7
_ROWS_AT_ONCE = 500_000
_LOOKUPS = 200_000
_BATCHES = 100
_BATCH_KEYS = 1_000
_SETTLE_SECONDS = 2.5
_PERCENT = 100


def make_sources(folder: Path, rows: int) -> tuple[Path, Path]:
    """Makes an instance with a table of the rows, and a file of them in random order, once."""
    home, file = folder / f"adjunct-{rows}", folder / f"adjunct-{rows}.parquet"
    if not file.exists():
        shutil.rmtree(home, ignore_errors=True)
        with sleeper.create_instance(home, {"sleeper.engine.threads": "1"}) as instance:
            table = instance.create_table("rows", _SCHEMA, {"sleeper.table.rows": "latest"})
            table.ingest(_batches(np.arange(rows)))
        shuffled = np.random.default_rng(1).permutation(rows)
        with pq.ParquetWriter(file, next(_batches(shuffled[:1])).schema) as writer:
            for batch in _batches(shuffled):
                writer.write_batch(batch)
    return home, file


def _batches(numbers: "np.ndarray[Any, Any]") -> Iterator[pa.RecordBatch]:
    for start in range(0, len(numbers), _ROWS_AT_ONCE):
        some = numbers[start : start + _ROWS_AT_ONCE]
        ids = pa.array(some * _STRIDE)
        columns = {"id": ids, "name": ids.cast(pa.string()), "n": pa.array(some % 1000)}
        yield pa.RecordBatch.from_pydict(columns)


def _value(number: int) -> dict[str, object]:
    return {"name": str(number * _STRIDE), "n": number % 1000}


def load(watch: Watch, home: str, input: str, rows: int, type: str) -> None:
    """Loads a store of an instance's table or a file."""
    stores = Path(home) / "stores"
    shutil.rmtree(stores, ignore_errors=True)
    with sleeper.open_instance(home) as instance:
        with watch:
            store = _open(instance, stores, input, type)
        with store:
            for number in (0, 1, rows // 2, rows - 1):
                check(store.get(number * _STRIDE) == _value(number), f"row {number} is another")
            check(sum(1 for _ in store.all()) == rows, "the number of keys is another")
    shutil.rmtree(stores)


def _open(instance: sleeper.Instance, stores: Path, input: str, type: str) -> AdjunctStore:
    return AdjunctStore.open(
        "rows", input, stores, instance=instance, type=type, refresh_seconds=None
    )


def look_up(watch: Watch, home: str, rows: int, type: str) -> dict[str, float]:
    """Times single lookups and batches of random keys, of which all are present."""
    stores = Path(home) / "stores"
    shutil.rmtree(stores, ignore_errors=True)
    chosen = random.Random(1)
    with (
        sleeper.open_instance(home) as instance,
        _open(instance, stores, "table:rows", type) as store,
    ):
        for key, _ in store.all():
            last = key  # reads all pages
        check(last == (rows - 1) * _STRIDE, "the last key is another")
        numbers = [chosen.randrange(rows) for _ in range(_LOOKUPS)]
        with watch:
            single = _time_each(store.get, [number * _STRIDE for number in numbers])
        batches = [
            [chosen.randrange(rows) * _STRIDE for _ in range(_BATCH_KEYS)] for _ in range(_BATCHES)
        ]
        many = _time_each(store.get_many, batches)
        for number in numbers[:1000]:
            check(store.get(number * _STRIDE) == _value(number), f"row {number} is another")
        check(all(store.get_many(batches[0])), "keys are missing")
    shutil.rmtree(stores)
    percentiles = quantiles(single, n=_PERCENT)
    return {
        "get_p50_us": median(single) * 1e6,
        "get_p99_us": percentiles[-1] * 1e6,
        "many_p50_ms": median(many) * 1e3,
    }


def _time_each(call: Callable[[Any], object], arguments: list[Any]) -> list[float]:
    found = []
    for each in arguments:
        start = perf_counter()
        call(each)
        found.append(perf_counter() - start)
    return found


def switch(watch: Watch, home: str, rows: int) -> dict[str, float]:
    """Times lookups of a thread while versions of a file follow each other.

    `pause` is the longest lookup around a switch: from the seal of a version to the deletion of the
    one before. `control` is the longest of as many lookups with nothing beside them.
    """
    folder = Path(home) / "switch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    spans: list[tuple[float, float]] = []
    lookups: list[tuple[float, float]] = []
    is_over = threading.Event()
    file = folder / "rows.parquet"
    _write(file, rows, 0)
    with AdjunctStore.open("rows", f"files:{file}", folder, refresh_seconds=None) as store:

        def look_up_often() -> None:
            chosen = random.Random(2)
            while not is_over.is_set():
                key = chosen.randrange(rows) * _STRIDE
                start = perf_counter()
                found = store.get(key)
                lookups.append((start, perf_counter() - start))
                check(found is not None, f"key {key} is missing")

        _record_switches(spans)
        thread = threading.Thread(target=look_up_often)
        thread.start()
        with watch:
            for version in (1, 2, 3):
                _write(file, rows, version)
                store.refresh()
                check(store.get(0) == {"version": version}, "the version is another")
        time.sleep(1)
        is_over.set()
        thread.join()
    shutil.rmtree(folder)
    around = [s for at, s in lookups if any(low <= at + s and at <= high for low, high in spans)]
    alone = [s for at, s in lookups if at > spans[-1][1]][: len(around)]
    return {"pause_ms": max(around) * 1e3, "control_ms": max(alone) * 1e3}


def _write(file: Path, rows: int, version: int) -> None:
    table = pa.table({"id": np.arange(rows) * _STRIDE, "version": np.full(rows, version)})
    new = file.with_suffix(".new")
    pq.write_table(table, new)
    new.replace(file)
    time.sleep(_SETTLE_SECONDS)


def _record_switches(spans: list[tuple[float, float]]) -> None:
    """Records from when to when each version took the place of the one before."""
    owner: Any = StoreFolder
    seal, delete_others = owner.seal, owner.delete_others
    begun: list[float] = []

    def sealed(*arguments: Any) -> None:
        begun.append(perf_counter())
        seal(*arguments)

    def deleted(*arguments: Any) -> None:
        delete_others(*arguments)
        spans.append((begun.pop(), perf_counter()))

    owner.seal, owner.delete_others = sealed, deleted
