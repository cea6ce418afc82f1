"""Tables for readers of Iceberg: publications of commits, loads by the catalog, and queries."""

import http.client
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.measuring import Measured, Task, Watch, run_by_turns
from benchmarks.result import Aim, Figure, Result, check, figure
from benchmarks.rows import random_rows
from benchmarks.schema import SCHEMA
from benchmarks.serve import serve_folder
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.api import create_instance
from sleeper.clock import system_clock
from sleeper.compaction.plan import compact_table
from sleeper.files import DataFile, new_data_path
from sleeper.iceberg.service import open_location, publish_table
from sleeper.instance import Instance, OpenTable
from sleeper.opening import open_instance
from sleeper.partitions.partition import Partition
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.add_files import AddFiles, NewFile

_FILES = 10_000
_ROWS = 3_000_000
_INGESTS = 3
_ROUNDS = 25
_LOADS = 5
_CHANGED = (1, 12, 100)
_TABLE = "t"
_LOAD_PATH = f"/iceberg/v1/namespaces/sleeper/tables/{_TABLE}"
_WAYS = {
    "extension": "DuckDB's extension",
    "planned": "PyIceberg's plan, DuckDB's `read_parquet`",
    "selected": "`to_duckdb` with `selected_fields`",
    "all": "`to_duckdb`",
}
_ENGINES = Path(sys.prefix) / "engines/bin/python"


def measure(settings: Settings) -> Result:
    rows = settings.rows or _ROWS
    metadata_url = _published_rows(settings.folder, rows)
    folder = settings.folder / "iceberg"
    tasks = {
        "publish": Task(__name__, "publish", {"folder": str(folder / "publish")}),
        "load": Task(__name__, "load", {"folder": str(folder / "load")}),
        "query": Task(
            "benchmarks.peers.iceberg",
            "query",
            {"metadata_url": metadata_url, "rows": rows},
            str(_ENGINES),
        ),
    }
    runs = run_by_turns(tasks, settings.repeats)
    shutil.rmtree(folder)
    figures = [*_commit_figures(runs), *_query_figures(runs["query"])]
    work = (
        f"A table of {_FILES:,} leaves of a file each, in a folder: the files are in the state"
        f" only. A commit of new files, each in another leaf, is published, {_ROUNDS} times; the"
        " figure is the median. The catalog is a server in another process that publishes before"
        " it answers. After that the metadata names exactly the files of the state."
        f" Queries read a compacted table of {rows:,} rows in 4 files with 2 threads, beside"
        " `read_parquet` on the same files by turns in one process: one column is its sum, all"
        " columns are sums of numbers and lengths. All results are equal."
    )
    return Result("iceberg", work, tuple(figures))


def _commit_figures(runs: dict[str, list[Measured]]) -> Iterator[Figure]:
    published = [run.answer for run in runs["publish"]]
    most = {1: Aim(100, is_most=True), 12: Aim(100, is_most=True)}
    yield figure("first publication", [each["first"] for each in published], "ms")
    for changed in _CHANGED:
        what = f"publication of {changed} more file{'s' if changed > 1 else ''}"
        yield figure(what, [a[f"{changed}"] for a in published], "ms", most.get(changed))
        yield figure(f"{what}, processor time", [a[f"{changed}_cpu"] for a in published], "ms")
    loaded = [run.answer for run in runs["load"]]
    for key, what in (
        ("first", "first load by the catalog, after a commit of a file"),
        ("changed", "load after a commit of a file"),
        ("unchanged", "load without a commit"),
    ):
        yield figure(what, [each[key] for each in loaded], "ms", Aim(200, is_most=True))


def _query_figures(runs: Sequence[Measured]) -> Iterator[Figure]:
    for columns in ("one column", "all columns"):
        for way, name in _WAYS.items():
            times = [run.answer[columns][way] for run in runs if way in run.answer[columns]]
            aim = None if way == "all" else Aim(1.2, is_most=True)
            if times:
                yield figure(f"{columns} by {name}, of `read_parquet`", times, "×", aim)


def publish(watch: Watch, folder: str) -> dict[str, float]:
    """Publications of commits."""
    with watch:
        table, leaves = _make(Path(folder))
        answer = {"first": _timed_publication(table)[0]}
        numbers = count()
        for changed in _CHANGED:
            times = []
            for _ in range(_ROUNDS):
                _commit(table, leaves, changed, next(numbers))
                times.append(_timed_publication(table))
            answer[f"{changed}"] = median(wall for wall, _ in times)
            answer[f"{changed}_cpu"] = median(cpu for _, cpu in times)
    _check_published(table)
    table.instance.close()
    shutil.rmtree(folder)
    return answer


def load(watch: Watch, folder: str) -> dict[str, float]:
    """Loads by the catalog."""
    table, leaves = _make(Path(folder))
    publish_table(table)
    _commit(table, leaves, 1, 0)
    with watch, serve_folder(folder) as (url, _):
        connection = http.client.HTTPConnection(url)
        answer = {"first": _timed_load(connection, table)}
        changed, unchanged = [], []
        for number in range(1, 1 + _LOADS):
            unchanged.append(_timed_load(connection, table))
            _commit(table, leaves, 1, number)
            changed.append(_timed_load(connection, table))
        connection.close()
    _check_published(table)
    table.instance.close()
    shutil.rmtree(folder)
    return {**answer, "changed": median(changed), "unchanged": median(unchanged)}


def _make(folder: Path) -> tuple[OpenTable, list[Partition]]:
    """Creates an instance with a table of as many leaves as files. Its files do not exist."""
    shutil.rmtree(folder, ignore_errors=True)
    create_instance(folder).close()
    instance = open_instance(str(folder))
    steps = [step * 26**5 // _FILES for step in range(1, _FILES)]
    points = ["".join(chr(97 + step // 26**i % 26) for i in (4, 3, 2, 1, 0)) for step in steps]
    ref = create_table(instance, _TABLE, schema_to_json(SCHEMA), {}, points)
    table = OpenTable(instance, ref)
    with table.state.reading() as state:
        leaves = list(state.partitions.leaves())
    _add(table, leaves, "all")
    return table, leaves


def _commit(table: OpenTable, leaves: list[Partition], files: int, number: int) -> None:
    chosen = random.Random(number).sample(leaves, files)
    _add(table, chosen, f"{files} of {number}")


def _add(table: OpenTable, leaves: Sequence[Partition], job_id: str) -> None:
    files = tuple(_new_file(table, leaf) for leaf in leaves)
    table.state.commit_or_raise(AddFiles(job_id, system_clock(), files))


def _new_file(table: OpenTable, leaf: Partition) -> NewFile:
    low = str(leaf.region.ranges[0].min) or "aaaaa"
    path = new_data_path(table.ref.id, leaf.id, system_clock())
    return NewFile(DataFile(path, 1000, 20_000, (low,), (f"{low}zz",)), ((leaf.id, 1000),))


def _timed_publication(table: OpenTable) -> tuple[float, float]:
    """Returns the milliseconds on the clock and of the processor."""
    start, cpu_start = time.perf_counter(), time.process_time()
    published = publish_table(table)
    seconds = time.perf_counter() - start, time.process_time() - cpu_start
    check(published.is_new, "nothing was published")
    return seconds[0] * 1000, seconds[1] * 1000


def _timed_load(connection: http.client.HTTPConnection, table: OpenTable) -> float:
    start = time.perf_counter()
    connection.request("GET", _LOAD_PATH)
    content = connection.getresponse().read()
    seconds = time.perf_counter() - start
    found = json.loads(content)["metadata"]["current-snapshot-id"]
    number = table.state.newest_number()
    check(found == number, f"the catalog has version {found}, the table {number}")
    return seconds * 1000


def _check_published(table: OpenTable) -> None:
    """CheckFailedError unless the newest snapshot names the files of the state."""
    location = open_location(table)
    _, metadata = location.read()
    check(metadata is not None, "there is no metadata")
    assert metadata is not None
    listed = location.read_list(metadata["snapshots"][-1]["manifest-list"])
    found = sorted(entry.path for each in listed for entry in location.read_manifest(each))
    root = table.instance.storage.root
    with table.state.reading() as state:
        paths = [file.path for leaf in state.files.leaf_references() for file in leaf[1]]
    expected = sorted(f"file://{root.url_of(path)}" for path in paths)
    check(found == expected, f"{len(found)} files are published of {len(expected)}")


def _published_rows(folder: Path, rows: int) -> str:
    """Returns the metadata of a published compacted table, which is made once."""
    home = folder / f"iceberg-{rows}"
    url_path = home / "metadata-url"
    if not url_path.exists():
        shutil.rmtree(home, ignore_errors=True)
        with create_instance(home) as instance:
            table = instance.create_table(
                _TABLE, schema_to_json(SCHEMA), split_points=["g", "n", "t"]
            )
            for number in range(_INGESTS):
                table.ingest(random_rows(rows // _INGESTS, number))
            _compact(home)
            instance.run_until_idle()
            published = instance.publish_iceberg(_TABLE)
        files = f"{published.files} files, {published.delete_files} delete files"
        check((published.files, published.delete_files) == (4, 0), files)
        url_path.write_text(published.metadata_url)
    return url_path.read_text()


def _compact(home: Path) -> None:
    opened: Instance = open_instance(str(home))
    compact_table(opened, _TABLE, full=True)
    opened.close()
