"""Memory of merges by number of inputs, and for a leaf of a thousand files."""

import shutil
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.measuring import Task, Watch, peaks_mib, rates, run_by_turns
from benchmarks.result import Aim, Figure, Result, check, figure
from benchmarks.rows import sorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.storage.location import DataRoot

ROWS = 1_000_000
_FAN_INS = (1, 12, 25, 50, 100)
_DISTINCT_FILES = 20
_SMALL_FILES = 1_000
_SMALL_FILE_ROWS = 20_000
_GIB = 2**30
_SMALL_BYTES = 256 * 2**20


def measure(settings: Settings) -> Result:
    rows_each = settings.rows or ROWS
    small_rows = min(_SMALL_FILE_ROWS, rows_each)
    root, distinct = sorted_files(settings.folder, rows_each, _DISTINCT_FILES)
    paths = list(islice(cycle(distinct), max(_FAN_INS)))
    tasks = {
        f"{count} of {rows_each:,} rows": _task(
            settings.folder, root, rows_each, paths[:count], _GIB
        )
        for count in _FAN_INS
    }
    small_root, small = sorted_files(settings.folder, small_rows, _SMALL_FILES)
    leaf = f"{_SMALL_FILES:,} of {small_rows:,} rows"
    tasks[leaf] = _task(settings.folder, small_root, small_rows, small, _SMALL_BYTES)
    runs = run_by_turns(tasks, max(1, settings.repeats - 1))
    figures: list[Figure] = []
    for name, results in runs.items():
        rows = small_rows * len(small) if name == leaf else rows_each * int(name.split()[0])
        aim = Aim(512, is_most=True) if name == leaf else Aim(1024 + 256, is_most=True)
        figures.append(figure(f"{name}, peak", peaks_mib(results), "MiB", aim))
        figures.append(figure(name, rates(rows, results), "M rows/s"))
    work = (
        "Sorted files merged, and the rows counted. merge.memory.bytes is 1 GiB, for the"
        f" {_SMALL_FILES:,} files {_SMALL_BYTES >> 20} MiB; the process itself takes about 170 MiB."
        " What does not fit goes through passes."
    )
    return Result("merge-memory", work, tuple(figures))


def ours(watch: Watch, files: list[str], memory_bytes: int, folder: str, rows: int) -> None:
    spill = Path(folder)
    shutil.rmtree(spill, ignore_errors=True)
    spill.mkdir(parents=True)
    inputs = tuple(MergeInput(f, bytes=Path(f).stat().st_size) for f in files)
    engine = EngineSettings(spill, memory_bytes=memory_bytes)
    count, last = 0, ""
    with watch:
        for batch in merge(MergeRequest(SCHEMA, inputs), engine):
            first = batch.column(0)[0].as_py()
            check(last <= first, f"{first} comes after {last}")
            last = batch.column(0)[-1].as_py()
            count += batch.num_rows
    check(count == rows, f"{count} rows came out of {rows}")


def _task(
    folder: Path, root: DataRoot, rows_each: int, paths: list[str], memory_bytes: int
) -> Task:
    arguments: dict[str, Any] = {
        "files": [root.url_of(path) for path in paths],
        "memory_bytes": memory_bytes,
        "folder": str(folder / "merge"),
        "rows": rows_each * len(paths),
    }
    return Task(__name__, "ours", arguments)
