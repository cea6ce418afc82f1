"""Lookups on S3: requests and times of keys and ranges of a table of eight files that overlap."""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import obstore

from benchmarks.counting_proxy import CountingProxy, counting_proxy
from benchmarks.lookup import FILES, ROWS, built_table, some_keys
from benchmarks.measuring import Task, Watch, peaks_mib, run_by_turns
from benchmarks.result import Aim, Figure, Result, check, figure
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.clock import system_clock
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import ROOT_PARTITION_ID, tree_from_split_points
from sleeper.partitions.region import whole_region
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import run_query
from sleeper.schema.model import schema_to_json
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.bucket import Bucket, Credentials, open_bucket
from sleeper.storage.location import DataRoot
from tests.servers.seaweedfs import S3Server, seaweedfs

_KEYS = 200
_MANY = {10: 30, 100: 20, 1000: 8}
_MOST = 1000
# The aims of most keys: requests, milliseconds, and the bytes read of those of the keys' pages.
_AIMS = {_MOST: (Aim(16, is_most=True), Aim(300, is_most=True))}
_AIM_OF_BYTES = Aim(2, is_most=True)
_ROWS_PER_PAGE = 512
_RANGES = 10
_ROWS_PER_RANGE = 100_000
_LETTERS = 10
# Keys of all of a file: which row groups many keys have in common decides on requests.
_ROW_GROUPS_MAX = 10_000


def measure(settings: Settings) -> Result:
    rows_each = (settings.rows or ROWS) // FILES
    table = built_table(settings.folder, rows_each)
    with TemporaryDirectory() as folder, seaweedfs(Path(folder), ("data",)) as server:
        for path in sorted((table / "table").rglob("*.parquet*")):
            name = path.relative_to(table).as_posix()
            obstore.put(open_bucket(server.bucket("data")), name, path)
        arguments = {
            "folder": str(table),
            "endpoint": server.endpoint,
            "key": server.credentials.access_key_id,
            "secret": server.credentials.secret_access_key,
            "rows": rows_each * FILES,
        }
        tasks = {"lookup_s3": Task(__name__, "ours", arguments)}
        runs = run_by_turns(tasks, settings.repeats)["lookup_s3"]

    def make_figure(key: str, name: str, unit: str, aim: Aim | None = None) -> Figure:
        return figure(name, [run.answer[key] for run in runs], unit, aim)

    figures = [
        make_figure(
            "fresh", "a key that is there, fresh process", "requests", Aim(4, is_most=True)
        ),
        make_figure(
            "fresh_of_one",
            "a key that is there, fresh process, one of the files alone",
            "requests",
            Aim(4, is_most=True),
        ),
        make_figure("present", "another key that is there", "requests", Aim(1.1, is_most=True)),
        make_figure("absent", "a key that is not", "requests", Aim(0.1, is_most=True)),
        make_figure("present_ms", "another key that is there, p50", "ms"),
        make_figure("absent_ms", "a key that is not, p50", "ms"),
    ]
    for count in _MANY:
        requests, time_ms = _AIMS.get(count, (None, None))
        name = f"{count:,} keys that are there"
        figures.append(make_figure(f"many_{count}", name, "requests", requests))
        figures.append(make_figure(f"many_{count}_ms", f"{name}, p50", "ms", time_ms))
    name = f"{_MOST:,} keys that are there, bytes read, of a page of {_ROWS_PER_PAGE} rows for each"
    figures.append(make_figure("read_of_wanted", name, "×", _AIM_OF_BYTES))
    figures.append(make_figure("ranges", f"{_RANGES} ranges of 100,000 rows", "requests"))
    figures.append(make_figure("ranges_ms", f"{_RANGES} ranges of 100,000 rows", "ms"))
    figures.append(figure("peak", peaks_mib(runs), "MiB"))
    work = (
        f"Keys and ranges of a table of {FILES} files of {rows_each:,} rows that all may hold"
        f" them by their bounds, on a SeaweedFS server on the same machine. Requests are means,"
        " counted by a proxy before the server; times are without the proxy. The process is"
        f" warm but for the first; {_KEYS} random keys one after another, and many at once."
    )
    return Result("lookup-s3", work, tuple(figures))


def ours(
    watch: Watch, folder: str, endpoint: str, key: str, secret: str, rows: int
) -> dict[str, Any]:
    home = Path(folder)
    spill = home / "spill"
    spill.mkdir(exist_ok=True)
    server = S3Server(endpoint, Credentials(key, secret))
    choice = random.Random(7)
    paths = sorted((home / "table").rglob("*.parquet"))
    present = [name for path in paths for name in some_keys(path, choice, _ROW_GROUPS_MAX)]
    choice.shuffle(present)
    state = open_state_store(home / "state.db")
    with counting_proxy(endpoint) as proxy, TemporaryDirectory() as temporary:
        counted = S3Server(proxy.endpoint, server.credentials).bucket("data")
        one, file = _state_of_one_file(state, Path(temporary) / "one.db")
        fresh = _Asker(one, spill, counted)
        fresh.keys(some_keys(home / file, choice)[:1])
        answer = {"fresh_of_one": float(proxy.taken())}
        counts = _Asker(state, spill, counted)
        counts.keys(present[:1])
        answer["fresh"] = float(proxy.taken())
        # After this, every file has been requested once.
        counts.keys(present[-100:])
        proxy.taken()
        page_bytes = _ROWS_PER_PAGE * sum(each.stat().st_size for each in paths) / rows
        answer |= _requests(present, counts, proxy, choice, rows, page_bytes)
    direct = _Asker(state, spill, server.bucket("data"))
    direct.keys(present[-100:])
    with watch:
        answer |= _times(present, direct, choice, rows)
    shutil.rmtree(spill)
    return answer


def _state_of_one_file(state: StateStore, path: Path) -> tuple[StateStore, str]:
    """Returns a state with one of the files, as a compaction leaves a leaf, and the file's path."""
    with state.reading() as version:
        file = version.files.leaf_files(ROOT_PARTITION_ID, whole_region(SCHEMA))[0]
    one = open_state_store(path)
    tree = tree_from_split_points(SCHEMA, [])
    one.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tuple(tree)))
    addition = NewFile(file, ((ROOT_PARTITION_ID, file.rows),))
    one.commit_or_raise(AddFiles("file", system_clock(), (addition,)))
    return one, file.path


class _Asker:
    """A warm process's engine over the table in a bucket."""

    def __init__(self, state: StateStore, spill: Path, bucket: Bucket) -> None:
        root = DataRoot(bucket)
        self._table = QueryTable("lookup", state, root)
        self._engine = QueryEngine(QuerySettings(EngineSettings(spill, buckets=root.buckets)))

    def keys(self, keys: Sequence[str], are_there: bool = True) -> None:
        query = Query(make_key_regions(SCHEMA, [(key,) for key in keys]))
        result = run_query(query, self._table, self._engine).read_all()
        expected = sorted(keys) if are_there else []
        check(result.column(0).to_pylist() == expected, "other keys were found than are there")

    def range(self, start: str, end: str) -> int:
        query = Query((make_range_region(SCHEMA, start, end),))
        rows: int = run_query(query, self._table, self._engine).read_all().num_rows
        return rows


def _requests(
    present: Sequence[str],
    asker: _Asker,
    proxy: CountingProxy,
    choice: random.Random,
    rows: int,
    page_bytes: float,
) -> dict[str, float]:
    def mean(questions: Sequence[Sequence[str]], are_there: bool = True) -> float:
        counts = []
        for keys in questions:
            asker.keys(keys, are_there)
            counts.append(proxy.taken())
        return fmean(counts)

    single = [[key] for key in present[1 : _KEYS + 1]]
    results = {
        "present": mean(single),
        "absent": mean([[f"{key}~"] for (key,) in single], are_there=False),
    }
    for count, times in _MANY.items():
        before = proxy.response_bytes
        results[f"many_{count}"] = mean([choice.sample(present, count) for _ in range(times)])
        if count == _MOST:
            read = proxy.response_bytes - before
            results["read_of_wanted"] = read / (times * count * page_bytes)
    _scan(asker, rows)
    return results | {"ranges": float(proxy.taken())}


def _times(
    present: Sequence[str], asker: _Asker, choice: random.Random, rows: int
) -> dict[str, float]:
    def middle(questions: Sequence[Sequence[str]], are_there: bool = True) -> float:
        times = []
        for keys in questions:
            start = time.perf_counter()
            asker.keys(keys, are_there)
            times.append(time.perf_counter() - start)
        return median(times) * 1000

    single = [[key] for key in present[1 : _KEYS + 1]]
    results = {
        "present_ms": middle(single),
        "absent_ms": middle([[f"{key}~"] for (key,) in single], are_there=False),
    }
    for count, times in _MANY.items():
        results[f"many_{count}_ms"] = middle([choice.sample(present, count) for _ in range(times)])
    start = time.perf_counter()
    _scan(asker, rows)
    return results | {"ranges_ms": (time.perf_counter() - start) * 1000}


def _scan(asker: _Asker, rows: int) -> None:
    """Ranges all over the key space, one after another. Keys are spread evenly."""
    share = min(_ROWS_PER_RANGE / rows, 1 / _RANGES)
    for place in range(_RANGES):
        start = place / _RANGES
        count = asker.range(_make_key(start), _make_key(start + share))
        check(abs(count / (share * rows) - 1) < 0.1, f"a range has {count} rows")


def _make_key(share: float) -> str:
    """The key below which are about so many of all."""
    letters = []
    for _ in range(_LETTERS):
        share *= 26
        letter = min(int(share), 25)
        letters.append(chr(97 + letter))
        share -= letter
    return "".join(letters)
