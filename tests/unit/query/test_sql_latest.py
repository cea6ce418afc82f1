"""SQL over a table of latest rows: the answers of an appending table, from few columns."""

import json
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.service import make_query_table
from sleeper.query.sql import statement as statement_module
from sleeper.query.sql.needs import TableNeeds
from sleeper.query.sql.service import open_sql
from sleeper.query.sql.statement import StatementRun
from tests.tables.data_table import list_rows

SCHEMA = {
    "rowKeyFields": [
        {"name": "Name", "type": "StringType"},
        {"name": "k", "type": "IntType"},
    ],
    "sortKeyFields": [{"name": "s", "type": "LongType"}],
    "valueFields": [
        {"name": "at", "type": "LongType"},
        {"name": "v", "type": "StringType", "nullable": True},
        {"name": "w", "type": "LongType"},
        {"name": "label", "type": "StringType"},
    ],
}
CALLERS = {
    "columns": {"valueFields": ["w"]},
    "rows": {"iterator": "RowSecurity", "config": "label,public"},
    "both": {"valueFields": ["w"], "iterator": "RowSecurity", "config": "label,public"},
    "owner": {},
}
STATEMENTS = [
    "SELECT * FROM {t} t",
    "SELECT * FROM {t} t WHERE w > 4 AND k < 7",
    "SELECT count(*) FROM {t} t",
    "SELECT count(w), count(DISTINCT w) FROM {t} t WHERE k = 3",
    "SELECT 1 AS one FROM {t} t",
    "SELECT count(*) FROM {t} t WHERE w IS NOT NULL",
    'SELECT sum(w) AS total, "Name" FROM {t} t GROUP BY "Name"',
    "SELECT a.s, b.w FROM {t} a JOIN {t} b ON a.k = b.w",
    "SELECT count(*) FROM {t} a, {t} b WHERE a.w < b.s",
    "SELECT k FROM {t} t WHERE w IN (SELECT s FROM {t} t WHERE k > 2)",
    "SELECT k, (SELECT max(w) FROM {t} t) AS most FROM {t} t",
    "SELECT k FROM {t} t WHERE w > (SELECT avg(w) FROM {t} b WHERE b.k = t.k)",
    "SELECT s FROM {t} t WHERE k = 1 OR EXISTS (SELECT 1 FROM {t} t WHERE w = 5)",
    "WITH x AS (SELECT k, w FROM {t} t) SELECT x.k, y.k FROM x JOIN x y ON x.w = y.k",
    "SELECT w FROM {t} t UNION ALL SELECT s FROM {t} t",
    'SELECT DISTINCT "Name" FROM {t} t ORDER BY "Name" LIMIT 1',
    "SELECT k FROM (SELECT DISTINCT k, w FROM {t} t) ORDER BY w DESC, k LIMIT 2",
    "SELECT k, row_number() OVER (ORDER BY w, s, k) AS n FROM {t} t",
    "SELECT t.w, other.x FROM {t} t JOIN other ON t.k = other.id",
    "SELECT count(*) FROM other",
    "DESCRIBE {t}",
]


def rows(first: int, count: int, at: int) -> pa.Table:
    keys = [number * 7 % 40 for number in range(first, first + count)]
    return pa.table(
        {
            "Name": [f"n{key % 3}" for key in keys],
            "k": pa.array([key % 8 for key in keys], pa.int32()),
            "s": [key % 5 for key in keys],
            "at": [at] * count,
            "v": [None if key % 4 == 0 else f"{at}-{key}" for key in keys],
            "w": [(key + at) % 9 for key in keys],
            "label": ["secret" if key % 6 == 0 else "public" for key in keys],
        }
    )


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sleeper.Instance]:
    """A table `t` of latest rows in several files, and `plain`, which has the same rows once."""
    properties = {QUERY_CALLERS.name: json.dumps(CALLERS)}
    latest = {"sleeper.table.rows": "latest", "sleeper.table.latest.by": "at"} | properties
    with sleeper.create_instance(tmp_path_factory.mktemp("sql") / "instance") as opened:
        table = opened.create_table("t", SCHEMA, latest, split_points=["n1"])
        for first, at in ((0, 3), (20, 1), (10, 2)):
            table.ingest(rows(first, 30, at))
        plain = opened.create_table("plain", SCHEMA, properties)
        plain.ingest(table.query().to_arrow())
        other = {
            "rowKeyFields": [{"name": "id", "type": "IntType"}],
            "valueFields": [{"name": "x", "type": "LongType"}],
        }
        opened.create_table("other", other).ingest(
            pa.table({"id": pa.array([2, 3], pa.int32()), "x": [5, 6]})
        )
        yield opened


def answer(instance: sleeper.Instance, table: str, text: str, caller: str | None) -> pa.Table:
    statement = text.format(t=table)
    return open_sql(instance._ports, statement, caller=caller).read_all()


def columns_written(
    instance: sleeper.Instance, text: str, caller: str | None = None
) -> list[list[str]]:
    """Returns the columns of the local files of a statement."""
    ports = instance._ports
    openers = {
        name: partial(make_query_table, ports.table(name), caller) for name in ("t", "other")
    }
    run = StatementRun(text.format(t="t"), ports.queries.engine())
    try:
        run.frame(openers, narrow=True)
        return [pq.read_schema(file).names for file in run.local_files if file.exists()]
    finally:
        run.release()


def assert_same(instance: sleeper.Instance, text: str, caller: str | None) -> None:
    expected, found = (answer(instance, table, text, caller) for table in ("plain", "t"))
    assert found.schema == expected.schema
    assert sorted(list_rows(found), key=repr) == sorted(list_rows(expected), key=repr)


@pytest.mark.parametrize("text", STATEMENTS)
def test_answers_are_those_of_a_table_with_the_same_rows(
    instance: sleeper.Instance, text: str
) -> None:
    assert_same(instance, text, None)


@pytest.mark.parametrize("caller", CALLERS)
def test_answers_to_callers_are_those_of_a_table_with_the_same_rows(
    instance: sleeper.Instance, caller: str
) -> None:
    assert_same(instance, "SELECT * FROM {t} t WHERE w > 2", caller)
    assert_same(instance, "SELECT count(*) FROM {t} t", caller)
    assert_same(instance, "SELECT a.s, b.w FROM {t} a JOIN {t} b ON a.k = b.w", caller)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM {t} t", ["Name", "k", "s", "at", "v", "w", "label"]),
        ("SELECT count(*) FROM {t} t", ["k"]),
        ("SELECT 1 FROM {t} t", ["k"]),
        ("SELECT count(*) FROM {t} t WHERE v LIKE '%1'", ["v"]),
        ("SELECT sum(w) FROM {t} t WHERE s > 2", ["s", "w"]),
        ("SELECT a.v FROM {t} a JOIN {t} b ON a.k = b.w", ["k", "v", "w"]),
        ("SELECT k FROM {t} t WHERE w IN (SELECT s FROM {t} t)", ["k", "s", "w"]),
    ],
)
def test_only_needed_columns_are_written(
    instance: sleeper.Instance, text: str, expected: list[str]
) -> None:
    assert columns_written(instance, text) == [expected]


def test_hidden_columns_are_not_written(instance: sleeper.Instance) -> None:
    assert columns_written(instance, "SELECT * FROM {t} t", "both") == [["Name", "k", "s", "w"]]
    with pytest.raises(InvalidRequestError, match="label"):
        columns_written(instance, "SELECT w FROM {t} t WHERE label = 'secret'", "both")


def test_columns_that_the_analysis_missed_are_written(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"t": TableNeeds(columns={"w"})}
    monkeypatch.setattr(statement_module, "find_needs", lambda *_: needs)
    text = "SELECT s, w FROM {t} t WHERE v LIKE '%1'"
    assert columns_written(instance, text) == [["Name", "k", "s", "at", "v", "w", "label"]]
    expected = answer(instance, "plain", text, None)
    assert sorted(list_rows(answer(instance, "t", text, None))) == sorted(list_rows(expected))
    spilled = instance._ports.queries.engine().settings.engine.spill_folder
    assert not list(spilled.glob("sql-*"))
