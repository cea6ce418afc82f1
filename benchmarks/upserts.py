"""Random upserts into a table that has many rows, beside peers, and reads of such a table."""

import json
import random
import shutil
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measuring import Measured, Task, Watch, peaks_mib, run, run_by_turns
from benchmarks.peers.environment import DELTA, DUCKDB, LANCE, installed
from benchmarks.result import OURS, Aim, Result, check, comparison, figure, of_the_best
from benchmarks.rows import random_words
from benchmarks.settings import Settings
from sleeper.api import Table, create_instance

ROWS = 10_000_000
_SHARE = 10
"""One upsert for so many rows."""
_NEW_SHARE = 10
"""One of so many upserts adds a key."""
_LOOKUPS = 200
_THREADS = 2
_SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "sortKeyFields": [],
    "valueFields": [{"name": "value", "type": "LongType"}, {"name": "text", "type": "StringType"}],
}


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    count = max(rows // _SHARE, 1)
    files = make_files(settings.folder, rows, count)
    tasks = {OURS: Task(__name__, "ours", _arguments(files, OURS), check=_checked(files))}
    for peer in installed(settings.folder, (DUCKDB, DELTA, LANCE)):
        arguments = {**_arguments(files, peer.peer.module), "threads": _THREADS}
        tasks[peer.label] = peer.task("upsert", arguments, check=_checked(files))
    runs = run_by_turns(tasks, max(1, settings.repeats - 1))
    seconds = {who: [each.seconds for each in measured] for who, measured in runs.items()}
    comparisons = [
        comparison("upserts", seconds, "s"),
        comparison("peak", {who: peaks_mib(each) for who, each in runs.items()}, "MiB"),
    ]
    figures = [figure(f"{count:,} upserts", seconds[OURS], "s", Aim(20, is_most=True))]
    if others := runs.keys() - {OURS}:
        best = of_the_best(seconds, OURS, others, less_is_better=True)
        figures.append(figure("ours, of the best peer", best, "×", Aim(1)))
    reads = run(Task(__name__, "reads", _arguments(files, "reads"))).answer
    figures += [
        figure("scan, of an appending table", reads["scan"], "×", Aim(1.3, is_most=True)),
        figure("lookup, of an appending table", reads["lookup"], "×", Aim(1.2, is_most=True)),
    ]
    work = (
        f"{count:,} rows with random keys, of which {100 // _NEW_SHARE} % are new, into a table of"
        f" {rows:,} rows: a long key, a long and a text of ten letters. One job or statement,"
        " durable at its end. Every competitor's rows are compared afterwards."
    )
    notes = (
        "DuckDB: `INSERT OR REPLACE` into a table with a primary key. Delta: `merge` of delta-rs."
        " Lance: `merge_insert`, with an index of the key. Their tables are made before.",
        "Reads compare the table of latest rows with one that appends the same rows.",
    )
    return Result("upserts", work, tuple(figures), tuple(comparisons), notes)


def make_files(folder: Path, rows: int, changes: int) -> Path:
    """Makes a folder of the rows, the upserts and what is expected after them, once."""
    home = folder / f"upserts-{rows}-{changes}"
    if (home / "expected.json").exists():
        return home
    home.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(7)
    # New keys are above the others.
    keys = generator.permutation(rows)
    new = max(changes // _NEW_SHARE, 1)
    chosen = generator.choice(rows, changes - new, replace=False)
    changed = generator.permutation(np.concatenate([chosen, np.arange(rows, rows + new)]))
    before = _write(home / "rows.parquet", keys, 1)
    after = _write(home / "changes.parquet", changed, 2)
    replaced = before.filter(pc.is_in(before["key"], pa.array(chosen)))["value"]
    total = pc.sum(before["value"]).as_py() - (pc.sum(replaced).as_py() or 0)
    total += pc.sum(after["value"]).as_py()
    (home / "expected.json").write_text(json.dumps({"rows": rows + new, "sum": total}))
    return home


def _write(path: Path, keys: Any, seed: int) -> pa.Table:
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 2**31, len(keys))
    text = random_words(generator, len(keys))
    table = pa.table({"key": keys, "value": values, "text": text})
    pq.write_table(table, path, row_group_size=1_000_000)
    return table


def ours(watch: Watch, rows: str, changes: str, home: str) -> dict[str, int]:
    shutil.rmtree(home, ignore_errors=True)
    with create_instance(home) as instance:
        table = _make_table(instance.create_table, "latest", rows)
        with watch:
            table.ingest(changes)
        counted = _count(table)
    shutil.rmtree(home)
    return counted


def reads(watch: Watch, rows: str, changes: str, home: str) -> dict[str, list[float]]:
    """Returns ratios of the times of reads of latest rows and of all rows, by turns."""
    shutil.rmtree(home, ignore_errors=True)
    scans: list[float] = []
    lookups: list[float] = []
    count = pq.ParquetFile(rows).metadata.num_rows
    chosen = random.Random(3).sample(range(count), min(_LOOKUPS, count))
    with create_instance(home) as instance, watch:
        tables = [_make_table(instance.create_table, name, rows) for name in ("append", "latest")]
        for table in tables:
            table.ingest(changes)
        for turn in range(4):
            append, latest = (_timed_scan(each) for each in tables)
            by_key = [_timed_lookups(each, chosen) for each in tables]
            if turn:  # the first turn fills the caches
                scans.append(latest / append)
                lookups.append(by_key[1] / by_key[0])
    shutil.rmtree(home)
    return {"scan": scans, "lookup": lookups}


def _make_table(create: Any, kind: str, rows: str) -> Table:
    table: Table = create(kind, _SCHEMA, {"sleeper.table.rows": kind})
    table.ingest(rows)
    return table


def _count(table: Table) -> dict[str, int]:
    rows = total = 0
    with table.query(columns=["value"]) as result:
        for batch in result:
            rows += batch.num_rows
            total += pc.sum(batch.column(0)).as_py() or 0
    return {"rows": rows, "sum": total}


def _timed_scan(table: Table) -> float:
    start = perf_counter()
    with table.query() as result:
        check(sum(batch.num_rows for batch in result) > 0, "no rows")
    return perf_counter() - start


def _timed_lookups(table: Table, keys: list[int]) -> float:
    seconds = []
    for key in keys:
        start = perf_counter()
        found = table.query(keys=[[key]]).to_arrow()
        seconds.append(perf_counter() - start)
        check(found.num_rows > 0, f"key {key} is missing")
    return median(seconds)


def _arguments(files: Path, name: str) -> dict[str, Any]:
    home = files / f"table-{name}"
    return {
        "rows": str(files / "rows.parquet"),
        "changes": str(files / "changes.parquet"),
        "home": str(home),
    }


def _checked(files: Path) -> Any:
    expected = json.loads((files / "expected.json").read_text())

    def compare(measured: Measured) -> None:
        check(measured.answer == expected, f"found {measured.answer} (expected {expected})")

    return compare
