"""The same queries for all peers: keys and ranges, each timed separately.

A file of queries is JSON: for each job its queries, of which the first `warm` run before the watch
starts, and the rows that the others should return. The peer reports its results, and the caller
compares them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measuring import Watch

_LOW_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Question:
    """Rows of any of these keys; if there are none, from `low` to below `high`, in order."""

    keys: list[str] | None = None
    low: str = ""
    high: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows, and the sum of the lower halves of their sort keys."""

    rows: int
    sum: int


def ask(
    watch: Watch,
    questions: str,
    answer: Callable[[Question], Any],
    tally: Callable[[Any], Tally] | None = None,
) -> dict[str, Any]:
    """For each job the seconds of each question, and the tally of all."""
    arguments = json.loads(Path(questions).read_text())
    count = tally or tally_of_table
    jobs = {
        name: ([Question(**item) for item in job["questions"]], job["warm"])
        for name, job in arguments.items()
    }
    results: dict[str, Any] = {}
    for asked, warm in jobs.values():
        for question in asked[:warm]:
            answer(question)
    with watch:
        for name, (asked, warm) in jobs.items():
            seconds, rows, total = [], 0, 0
            for question in asked[warm:]:
                start = time.perf_counter()
                result = answer(question)
                seconds.append(time.perf_counter() - start)
                counts = count(result)
                rows, total = rows + counts.rows, total + counts.sum
            results[name] = {"seconds": seconds, "rows": rows, "sum": total}
    return results


def tally_of_table(table: pa.Table) -> Tally:
    low = pc.bit_wise_and(table.column("sort"), _LOW_BITS)
    return Tally(table.num_rows, pc.sum(low).as_py() or 0)
