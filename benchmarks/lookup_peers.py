"""Lookups beside peers: the same keys and ranges of the same rows, each in a warm process."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import pyarrow as pa

from benchmarks.lookup import FILES, ROWS, built_table
from benchmarks.measuring import Measured, Task, Watch, peaks_mib, run, run_by_turns
from benchmarks.peers.asking import Question, ask
from benchmarks.peers.environment import DUCKDB, LANCE, SLATEDB, Installed, installed
from benchmarks.questions import (
    ABSENT,
    KEYS_AT_ONCE,
    MANY,
    POINT,
    RANGE,
    RANGE_ROWS,
    check_answers,
    questions_about,
)
from benchmarks.result import OURS, Aim, Result, comparison, figure, of_the_best
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.local.state_store import open_state_store
from sleeper.partitions.region import Region
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import run_query
from sleeper.storage.location import DataRoot

_THREADS = 2
_SLATEDB_FILES = 1
_MANY = f"{KEYS_AT_ONCE:,} keys, p50"
_RANGE = f"{RANGE_ROWS:,} rows of a range, p50"
_JOBS = {
    "one key, p50": (POINT, 50),
    "one key, p99": (POINT, 99),
    "one absent key, p50": (ABSENT, 50),
    _MANY: (MANY, 50),
    _RANGE: (RANGE, 50),
}


def measure(settings: Settings) -> Result:
    rows_each = (settings.rows or ROWS) // FILES
    table = built_table(settings.folder, rows_each)
    files = sorted((table / "table").rglob("*.parquet"))
    all_questions = questions_about(files, table / "questions.json")
    tasks = {OURS: _task(all_questions, {"folder": str(table)})}
    notes = [
        "Sleeper answers from a table: state store, key filters, pages. The others have no"
        " state to ask; key filters and footers are warm, pages are not kept."
    ]
    for peer in installed(settings.folder, (DUCKDB, LANCE, SLATEDB)):
        tasks[peer.label], note = _of_peer(peer, table, files)
        notes.append(f"{peer.label} {note}")
    runs = run_by_turns(tasks, max(1, settings.repeats - 1))
    results = {
        job: {who: _milliseconds(peer_runs, *what) for who, peer_runs in runs.items()}
        for job, what in _JOBS.items()
    }
    comparisons = [comparison(job, by_who, "ms") for job, by_who in results.items()]
    peaks = {who: peaks_mib(peer_runs) for who, peer_runs in runs.items()}
    comparisons.append(comparison("peak", peaks, "MiB"))
    others = runs.keys() - {OURS}
    figures = [
        figure(
            f"{job}, of the best peer", of_the_best(results[job], OURS, others, True), "×", Aim(1)
        )
        for job in (_MANY, _RANGE)
        if others
    ]
    work = (
        f"A table of {FILES} files of {rows_each:,} rows that all may hold every key by their"
        " bounds, in one leaf, on local disk. Each query runs once, one after another,"
        f" in a warm process with {_THREADS} threads. Ranges come in key order."
    )
    return Result("lookup-peers", work, tuple(figures), tuple(comparisons), tuple(notes))


def ours(watch: Watch, folder: str, questions: str, threads: int) -> dict[str, Any]:
    home = Path(folder)
    spill = home / "spill"
    spill.mkdir(exist_ok=True)
    table = QueryTable("lookup", open_state_store(home / "state.db"), DataRoot(home))
    engine = QueryEngine(QuerySettings(EngineSettings(spill, threads=threads)))

    def answer(question: Question) -> pa.Table:
        if question.keys is None:
            regions: Sequence[Region] = (make_range_region(SCHEMA, question.low, question.high),)
        else:
            regions = make_key_regions(SCHEMA, [(key,) for key in question.keys])
        return run_query(Query(regions), table, engine).read_all()

    answers = ask(watch, questions, answer)
    shutil.rmtree(spill)
    return answers


def _of_peer(peer: Installed, table: Path, files: list[Path]) -> tuple[Task, str]:
    """Returns the peer's task and a note of its differences."""
    all_questions = table / "questions.json"
    names = [str(file) for file in files]
    if peer.peer is DUCKDB:
        note = "reads the same Parquet files, their footers cached, without key filters."
        return _task(all_questions, {"files": names}, peer), note
    if peer.peer is LANCE:
        seconds = _built(peer, table, names)
        note = (
            "has its own copy of the rows and an index of all keys, of which it keeps what it"
            f" has read in memory; both were made before, in {seconds:.0f} s."
        )
        return _task(all_questions, {"home": str(_home(peer, table))}, peer), note
    seconds = _built(peer, table, names[:_SLATEDB_FILES])
    some_questions = questions_about(files[:_SLATEDB_FILES], table / "questions-of-some.json")
    note = (
        f"has its own copy of {_SLATEDB_FILES} of the files only, loaded row by row in"
        f" {seconds:.0f} s, so a range of its is so many neighbours out of fewer rows; a key"
        " holds one row, and its binding gives Python objects."
    )
    return _task(some_questions, {"home": str(_home(peer, table))}, peer), note


def _task(questions: Path, arguments: dict[str, Any], peer: Installed | None = None) -> Task:
    def check(run: Measured) -> None:
        check_answers(questions, run.answer)

    arguments = {**arguments, "questions": str(questions), "threads": _THREADS}
    if peer is None:
        return Task(__name__, "ours", arguments, check=check)
    return peer.task("lookup", arguments, check=check)


def _home(peer: Installed, table: Path) -> Path:
    return table / f"{peer.peer.module}-{peer.version}"


def _built(peer: Installed, table: Path, files: list[str]) -> float:
    """Creates the peer's own copy, and returns the time in seconds."""
    home = _home(peer, table)
    result_path = home.with_suffix(".json")
    if not result_path.exists():
        built = run(peer.task("build", {"files": files, "home": str(home)}))
        result_path.write_text(json.dumps(built.seconds))
    seconds: float = json.loads(result_path.read_text())
    return seconds


def _milliseconds(runs: list[Measured], job: str, percent: int) -> list[float]:
    return [quantiles(r.answer[job]["seconds"], n=100)[percent - 1] * 1000 for r in runs]
