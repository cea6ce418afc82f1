"""Lookups: keys of a table of eight files that overlap, planning in the state store included."""

import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Task, Watch, peaks_mib, run_by_turns
from benchmarks.result import Aim, Figure, Result, check, figure
from benchmarks.rows import random_rows, write_data_file
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.clock import system_clock
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.merged import write_merge
from sleeper.datafiles.write.partitioned import WriteTarget
from sleeper.files import DataFile
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import ROOT_PARTITION_ID, tree_from_split_points
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query, make_key_regions
from sleeper.query.run import run_query
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot

ROWS = 8_000_000
FILES = 8
_KEYS = 300
_MANY = {10: 60, 100: 30, 1000: 15}
_AIMS_MS = {1000: Aim(60, is_most=True)}


def measure(settings: Settings) -> Result:
    rows_each = (settings.rows or ROWS) // FILES
    arguments = {"folder": str(built_table(settings.folder, rows_each))}
    runs = run_by_turns({"lookup": Task(__name__, "ours", arguments)}, settings.repeats)["lookup"]

    def make_figure(key: str, name: str, aim: Aim | None = None) -> Figure:
        return figure(name, [run.answer[key] for run in runs], "ms", aim)

    figures = [
        make_figure("present_p50", "a key that is there, p50", Aim(0.7, is_most=True)),
        make_figure("present_p99", "a key that is there, p99"),
        make_figure("absent_p50", "a key that is not, p50", Aim(0.2, is_most=True)),
        make_figure("absent_p99", "a key that is not, p99"),
        make_figure("first", "the first of a process", Aim(15, is_most=True)),
    ]
    for count in _MANY:
        aim = _AIMS_MS.get(count)
        figures.append(
            make_figure(f"present_{count}_p50", f"{count:,} keys that are there, p50", aim)
        )
        figures.append(make_figure(f"absent_{count}_p50", f"{count:,} keys that are not, p50"))
    figures.append(figure("peak", peaks_mib(runs), "MiB"))
    work = (
        f"Keys of a table of {FILES} files of {rows_each:,} rows that all may hold them by their"
        f" bounds, one leaf; {_KEYS} random keys one after another in a warm process, and many"
        " at once. From the query to its rows: state store, key filters, pages."
    )
    return Result("lookup", work, tuple(figures))


def ours(watch: Watch, folder: str) -> dict[str, Any]:
    home = Path(folder)
    spill = home / "spill"
    spill.mkdir(exist_ok=True)
    choice = random.Random(7)
    paths = sorted((home / "table").rglob("*.parquet"))
    present = [key for path in paths for key in some_keys(path, choice)]
    choice.shuffle(present)
    table = QueryTable("lookup", open_state_store(home / "state.db"), DataRoot(home))
    with watch:
        engine = QueryEngine(QuerySettings(EngineSettings(spill)))

        def measure_seconds(keys: Sequence[str]) -> tuple[float, int]:
            start = time.perf_counter()
            regions = make_key_regions(SCHEMA, [(key,) for key in keys])
            result = run_query(Query(regions), table, engine).read_all()
            seconds = time.perf_counter() - start
            check(set(result.column(0).to_pylist()) <= set(keys), "another key was found")
            return seconds, result.num_rows

        first, _ = measure_seconds(present[:1])
        answer = {"first": first * 1000}
        single = [[key] for key in present[1 : _KEYS + 1]]
        answer |= _measured("", single, measure_seconds)
        for count, times in _MANY.items():
            many = [choice.sample(present, count) for _ in range(times)]
            answer |= _measured(f"_{count}", many, measure_seconds)
    shutil.rmtree(spill)
    return answer


def _measured(
    name: str,
    questions: Sequence[list[str]],
    measure_seconds: Callable[[list[str]], tuple[float, int]],
) -> dict[str, float]:
    """The times of these keys, and of as many that are not there."""
    present = [(measure_seconds(keys), len(keys)) for keys in questions]
    absent = [measure_seconds([key + "~" for key in keys]) for keys in questions]
    check(all(rows == n for (_, rows), n in present), "a key that is there was not found, or twice")
    check(all(rows == 0 for _, rows in absent), "a key that is not there was found")
    return {
        **_percentiles(f"present{name}", [seconds for (seconds, _), _ in present]),
        **_percentiles(f"absent{name}", [seconds for seconds, _ in absent]),
    }


def built_table(folder: Path, rows_each: int) -> Path:
    """A table with its state, made once: eight files of so many rows, all in one leaf."""
    home = folder / f"lookup-merged-{rows_each}"
    if not (home / "done").exists():
        _build(home, rows_each)
        (home / "done").touch()
    return home


def _build(home: Path, rows_each: int) -> None:
    shutil.rmtree(home, ignore_errors=True)
    state = open_state_store(home / "state.db")
    tree = tree_from_split_points(SCHEMA, [])
    state.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tuple(tree)))
    run_start_ms = system_clock()
    files = [_write_merged(home, random_rows(rows_each, 1000 + n)) for n in range(FILES)]
    additions = tuple(NewFile(f, ((ROOT_PARTITION_ID, f.rows),)) for f in files)
    state.commit_or_raise(AddFiles("files", run_start_ms, additions))


def _write_merged(home: Path, rows: pa.Table) -> DataFile:
    """Writes rows in no order as a compaction writes a file."""
    root, whole = DataRoot(home), tree_from_split_points(SCHEMA, [])
    unmerged = write_data_file(root, "unmerged.parquet", rows)
    target = WriteTarget(root, "table", SCHEMA, whole, system_clock(), FileSettings())
    spill = home / "spill"
    spill.mkdir(exist_ok=True)
    request = MergeRequest(SCHEMA, (MergeInput(root.url_of(unmerged.path)),))
    file = write_merge(request, EngineSettings(spill), target)
    check(file is not None and file.rows == len(rows), "a merged file lacks rows")
    assert file is not None
    root.delete([unmerged.path + suffix for suffix in ("", *unmerged.sidecars)])
    return file


def some_keys(path: Path, choice: random.Random, row_groups_max: int = 10) -> list[str]:
    """Keys of some of the file's row groups."""
    file = pq.ParquetFile(path)
    count = min(file.num_row_groups, row_groups_max)
    groups = choice.sample(range(file.num_row_groups), count)
    column = file.read_row_groups(groups, columns=["key"]).column(0)
    places = choice.sample(range(len(column)), min(len(column), 2 * _KEYS))
    keys: list[str] = column.take(places).to_pylist()
    return keys


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100)
    return {f"{name}_p50": cuts[49] * 1000, f"{name}_p99": cuts[98] * 1000}
