"""No interface evaluates a condition on a row that a table hides."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pytest

import sleeper
from sleeper.duckdb import register_tables
from sleeper.polars import scan_sleeper
from tests.tables.poison import HIDDEN, PLAIN, compact_all, make_poisoned_tables
from tests.unit.serve.client import post

# A row that is hidden from a caller is visible to the owner.
TABLES = [name for name in HIDDEN if name != "restricted"]


@pytest.fixture(scope="module", params=["before a compaction", "after a compaction"])
def instance(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sleeper.Instance]:
    with make_poisoned_tables(tmp_path_factory.mktemp("poison") / "instance") as opened:
        if request.param == "after a compaction":
            compact_all(opened)
        yield opened


def read_by_duckdb(instance: sleeper.Instance, table: str, condition: str) -> list[int]:
    with duckdb.connect() as connection:
        register_tables(connection, instance, [table])
        rows = connection.sql(f"SELECT id FROM {table} WHERE {condition} ORDER BY id").fetchall()
    return [row[0] for row in rows]


def read_by_polars(instance: sleeper.Instance, table: str, condition: str) -> list[int]:
    frame = scan_sleeper(instance, table).filter(pl.sql_expr(condition)).select("id").collect()
    return sorted(frame["id"].to_list())


def read_by_http(instance: sleeper.Instance, table: str, condition: str) -> list[int]:
    statement = f"SELECT id FROM {table} WHERE {condition} ORDER BY id"
    response = post(instance._ports, "/sql", {"statement": statement})
    if response.status_code != 200:
        raise ValueError(response.text)
    return [each["id"] for each in map(_parse, response.text.splitlines())]


def read_by_python(instance: sleeper.Instance, table: str, condition: str) -> list[int]:
    with instance.sql(f"SELECT id FROM {table} WHERE {condition} ORDER BY id") as rows:
        ids: list[int] = rows.to_arrow()["id"].to_pylist()
    return ids


def _parse(line: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(line)
    return parsed


Read = Callable[[sleeper.Instance, str, str], list[int]]
READS: dict[str, tuple[Read, list[str]]] = {
    "duckdb": (
        read_by_duckdb,
        ["CAST(text AS BIGINT) >= 0", "CAST(big AS INT) > 0", "abs(n) >= 0"],
    ),
    "polars": (read_by_polars, ["CAST(text AS BIGINT) >= 0", "CAST(big AS INT) > 0"]),
    "http": (read_by_http, ["10 / z <> -1", "CAST(text AS BIGINT) >= 0", "abs(n) >= 0"]),
    "python": (read_by_python, ["10 / z <> -1", "CAST(text AS BIGINT) >= 0", "abs(n) >= 0"]),
}


@pytest.mark.parametrize(
    ("face", "condition"), [(face, each) for face, (_, known) in READS.items() for each in known]
)
def test_hidden_rows_do_not_fail_a_condition(
    instance: sleeper.Instance, face: str, condition: str
) -> None:
    read, _ = READS[face]
    expected = read(instance, PLAIN, condition)
    assert len(expected) == 9
    for table in TABLES:
        assert read(instance, table, condition) == expected, table


@pytest.mark.parametrize("face", READS)
def test_conditions_that_fail_on_visible_rows_fail_alike(
    instance: sleeper.Instance, face: str
) -> None:
    read, _ = READS[face]
    condition = "CAST(label AS BIGINT) > 0"
    reasons = []
    for table in (PLAIN, *TABLES):
        with pytest.raises(Exception) as failure:  # noqa: PT011
            read(instance, table, condition)
        # DuckDB adds the statement, which names the table.
        reasons.append(_check_counts(str(failure.value).splitlines()[0]))
    assert len(set(reasons)) == 1


def _check_counts(reason: str) -> str:
    """Returns the reason without Polars' counts of failed values, which have no hidden row.

    It counts those of the first batch: of the first leaf, or of both if they share their files.
    """
    counts = re.search(r"(\d+) out of (\d+) values", reason)
    if counts is None:
        return reason
    assert counts[1] == counts[2]
    assert int(counts[1]) in (4, 9)
    return reason.replace(counts[0], "values")
