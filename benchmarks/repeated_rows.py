"""Rows whose keys come again in other files, and what they are once they are aggregated.

Each key with its sort key comes four times on average, in any of the files; three long
values are summed, and the least and the greatest taken.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.result import check
from benchmarks.rows import check_sorted, random_words, write_data_file
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot

_VALUES = ("total", "least", "greatest")
REPEATED_SCHEMA = Schema(
    (Field("key", PrimitiveType.STRING),),
    (Field("sort", PrimitiveType.LONG),),
    tuple(Field(name, PrimitiveType.LONG) for name in _VALUES),
)
AGGREGATIONS = "sum(total),min(least),max(greatest)"
REPEATS = 4
# Sums over all rows stay below what a long holds.
_VALUE_MAX = 2**31


@dataclass(frozen=True, slots=True)
class Expected:
    """How many groups there are, and of all groups the sum of each value."""

    groups: int
    total: int
    least: int
    greatest: int


@dataclass(frozen=True, slots=True)
class RepeatedRows:
    """Sorted data files in a folder."""

    folder: Path
    paths: tuple[str, ...]
    rows: int

    @property
    def expected(self) -> Expected:
        return Expected(**json.loads((self.folder / "expected.json").read_text()))


def repeated_rows(folder: Path, rows_each: int, files: int) -> RepeatedRows:
    """Makes the files once."""
    home = folder / f"repeated-{rows_each}"
    paths = tuple(f"{number:04d}.parquet" for number in range(files))
    if not (home / "expected.json").exists():
        home.mkdir(parents=True, exist_ok=True)
        _make(home, paths, rows_each)
    return RepeatedRows(home, paths, rows_each * files)


def check_aggregated(output: Path, expected: Expected) -> None:
    """CheckFailedError unless the file holds each group once, in order, with the right sums."""
    rows = check_sorted(output)
    check(rows == expected.groups, f"{rows} groups came out of {expected.groups}")
    table = pq.read_table(output, columns=list(_VALUES))
    for name in _VALUES:
        result, right = pc.sum(table.column(name)).as_py(), getattr(expected, name)
        check(result == right, f"{name} of all groups is {result}, it should be {right}")


def _make(home: Path, paths: tuple[str, ...], rows_each: int) -> None:
    random = np.random.default_rng(5)
    count = max(1, rows_each * len(paths) // REPEATS)
    keys, sorts = random_words(random, count), random.integers(0, 2**62, count)
    seen = np.zeros(count, bool)
    total = 0
    least, greatest = np.full(count, _VALUE_MAX), np.full(count, -1)
    for path in paths:
        which = random.integers(0, count, rows_each)
        values = {name: random.integers(0, _VALUE_MAX, rows_each) for name in _VALUES}
        seen[which] = True
        total += int(values["total"].sum())
        np.minimum.at(least, which, values["least"])
        np.maximum.at(greatest, which, values["greatest"])
        columns = {"key": keys.take(pa.array(which)), "sort": sorts[which], **values}
        write_data_file(DataRoot(home), path, pa.table(columns), REPEATED_SCHEMA)
    expected = Expected(int(seen.sum()), total, int(least[seen].sum()), int(greatest[seen].sum()))
    (home / "expected.json").write_text(json.dumps(asdict(expected)))
