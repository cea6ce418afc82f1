"""Queries of a table of random rows, and their correct answers.

The rows are read once, and all peers receive the same queries; see `peers/asking.py`.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.asking import tally_of_table
from benchmarks.result import check

POINT, ABSENT, MANY, RANGE = "one key", "an absent key", "many keys", "a range"
KEYS_AT_ONCE = 1_000
RANGE_ROWS = 100_000
_TIMES = {POINT: 300, ABSENT: 300, MANY: 10, RANGE: 10}
_WARM = {POINT: 30, ABSENT: 30, MANY: 2, RANGE: 2}


def questions_about(files: Sequence[Path], target: Path) -> Path:
    """Makes the file of questions once."""
    if target.exists():
        return target
    rows = pa.concat_tables([pq.read_table(f, columns=["key", "sort"]) for f in files])
    rows = rows.combine_chunks().sort_by([("key", "ascending"), ("sort", "ascending")])
    jobs = {name: _job(name, rows, random.Random(name)) for name in _TIMES}
    target.write_text(json.dumps(jobs))
    return target


def check_answers(questions: Path, answers: dict[str, Any]) -> None:
    """CheckFailedError unless each job's answers held the rows that they should."""
    for name, job in json.loads(questions.read_text()).items():
        result = {key: answers[name][key] for key in ("rows", "sum")}
        right = {key: job[key] for key in ("rows", "sum")}
        check(result == right, f"{name}: the answers hold {result}, they should {right}")


def _job(name: str, rows: pa.Table, choice: random.Random) -> dict[str, Any]:
    requests = []
    results = []
    for number in range(_WARM[name] + _TIMES[name]):
        question, places = _question(name, rows, choice)
        requests.append(question)
        if number >= _WARM[name]:
            results.append(tally_of_table(rows.take(pa.array(places, pa.int64()))))
    return {
        "questions": requests,
        "warm": _WARM[name],
        "rows": sum(item.rows for item in results),
        "sum": sum(item.sum for item in results),
    }


def _question(
    name: str, rows: pa.Table, choice: random.Random
) -> tuple[dict[str, Any], Sequence[int]]:
    """A question, and the places of the rows that answer it."""
    keys = rows.column("key")
    if name == RANGE:
        count = min(RANGE_ROWS, len(keys) // 2)
        start = choice.randrange(len(keys) - count)
        low, high = keys[start].as_py(), keys[start + count].as_py()
        return {"low": low, "high": high}, range(start, start + count)
    places = choice.sample(range(len(keys)), min(KEYS_AT_ONCE, len(keys)) if name == MANY else 1)
    requested = [keys[place].as_py() for place in places]
    if name == ABSENT:
        return {"keys": [requested[0] + "~"]}, []
    return {"keys": requested}, places
