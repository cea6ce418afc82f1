"""The planner's statistics of files: they order joins, and never answer with wrong extremes."""

import math
from pathlib import Path

import pytest

from sleeper.query.engine import QueryTable
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.tables.data_table import DataTable, make_engine

SCHEMA = Schema(
    (Field("k", PrimitiveType.LONG),),
    (),
    (Field("f", PrimitiveType.DOUBLE, nullable=True), Field("n", PrimitiveType.LONG)),
)


def rows(folder: Path, statement: str) -> list[tuple[object, ...]]:
    tables = {name: DataTable(folder / name, SCHEMA) for name in ("large", "small")}
    tables["large"].add_rows([(k, math.nan if k == 3 else float(k), k) for k in range(2000)])
    tables["small"].add_rows([(k, math.nan if k else 5.0, k) for k in range(2)])
    openers = {
        name: lambda name=name, table=table: QueryTable(name, table.store, table.root)
        for name, table in tables.items()
    }
    found = run_sql(statement, openers, make_engine(folder)).read_all()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("large", "small"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("tables", ["large, small", "small, large"])
def test_the_smaller_table_of_a_join_is_kept_in_memory(folder: Path, tables: str) -> None:
    join = f"SELECT large.n FROM {tables} WHERE large.k = small.k"
    ((_, plan),) = rows(folder, f"EXPLAIN FORMAT INDENT {join}")[-1:]
    scans = [line for line in str(plan).splitlines() if "file_groups" in line]
    assert ["projection=[k]" in scan for scan in scans] == [True, False], plan


def test_the_largest_float_of_one_of_several_tables_may_be_nan(folder: Path) -> None:
    ((largest, count),) = rows(folder, "SELECT (SELECT MAX(f) FROM large), count(*) FROM small")
    assert math.isnan(largest)  # type: ignore[arg-type]
    assert count == 2


def test_nan_beside_equal_floats_stays_nan_in_a_join(folder: Path) -> None:
    # The statistics of the file have 5.0 as the least and the largest value.
    joined = "SELECT small.f FROM large JOIN small ON large.k = small.k ORDER BY small.k"
    ((first,), (second,)) = rows(folder, joined)
    assert first == 5.0
    assert math.isnan(second)  # type: ignore[arg-type]
