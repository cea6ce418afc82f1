"""Point lookups: one key in eight files that overlap, each a merge of its own."""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import pyarrow.parquet as pq

from benchmarks.measuring import Task, Watch, peaks_mib, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.rows import sorted_files
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.datafiles.merge import MergeInput, MergeRequest, merge
from sleeper.datafiles.session import EngineSettings, open_session
from sleeper.partitions.region import key_region

ROWS = 8_000_000
_FILES = 8
_KEYS = 300


def measure(settings: Settings) -> Result:
    rows_each = (settings.rows or ROWS) // _FILES
    _, paths = sorted_files(settings.folder, rows_each, _FILES)
    root = next(settings.folder.glob(f"sorted-{rows_each}-*"))
    files = [str(root / path) for path in paths]
    arguments = {"files": files, "folder": str(settings.folder / "lookup")}
    runs = run_by_turns({"lookup": Task(__name__, "ours", arguments)}, settings.repeats)["lookup"]

    def of(key: str) -> list[float]:
        return [run.answer[key] for run in runs]

    figures = (
        figure("a key that is there, p50", of("present_p50"), "ms", Aim(15, is_most=True)),
        figure("a key that is there, p99", of("present_p99"), "ms"),
        figure("a key that is not, p50", of("absent_p50"), "ms"),
        figure("a key that is not, p99", of("absent_p99"), "ms"),
        figure("the first of a process", of("first"), "ms"),
        figure("peak", peaks_mib(runs), "MiB"),
    )
    work = (
        f"One key out of {_FILES} files of {rows_each:,} rows that all may hold it, {_KEYS} random"
        " keys one after another in a warm process. Files are opened by the merge, without"
        " the planning in the state store (see state)."
    )
    return Result("lookup", work, figures)


def ours(watch: Watch, files: list[str], folder: str) -> dict[str, Any]:
    spill = Path(folder)
    spill.mkdir(parents=True, exist_ok=True)
    choice = random.Random(7)
    present = [key for path in files for key in _some_keys(path, choice)]
    choice.shuffle(present)
    settings = EngineSettings(spill)
    with watch:
        session = open_session(settings)

        def seconds_of(key: str) -> tuple[float, int]:
            start = time.perf_counter()
            region = key_region(SCHEMA, (key,))
            inputs = tuple(MergeInput(f, (region,)) for f in files)
            rows = 0
            for batch in merge(MergeRequest(SCHEMA, inputs), settings, session):
                check(batch.column(0)[0].as_py() == key, "another key was found")
                rows += batch.num_rows
            return time.perf_counter() - start, rows

        first, _ = seconds_of(present[0])
        there = [seconds_of(key) for key in present[1 : _KEYS + 1]]
        absent = [seconds_of(key + "~") for key in present[1 : _KEYS + 1]]
    check(all(rows == 1 for _, rows in there), "a key that is there was not found, or twice")
    check(all(rows == 0 for _, rows in absent), "a key that is not there was found")
    shutil.rmtree(spill)
    return {
        "first": first * 1000,
        **_percentiles("present", [s for s, _ in there]),
        **_percentiles("absent", [s for s, _ in absent]),
    }


def _some_keys(path: str, choice: random.Random) -> list[str]:
    file = pq.ParquetFile(path)
    group = choice.randrange(file.metadata.num_row_groups)
    keys: list[str] = file.read_row_group(group, columns=["key"]).column(0).to_pylist()
    return choice.sample(keys, min(len(keys), _KEYS // _FILES + 2))


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100)
    return {f"{name}_p50": cuts[49] * 1000, f"{name}_p99": cuts[98] * 1000}
