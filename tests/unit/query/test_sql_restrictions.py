"""SQL of restricted callers: no statement reveals hidden rows and columns."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.admin.clone import clone_table
from sleeper.admin.schema import change_schema
from sleeper.admin.tables import create_table
from sleeper.errors import InvalidRequestError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.processing.field_changes import AddField, RenameField
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.request import Query, make_key_regions
from sleeper.query.service import open_query
from sleeper.query.sql.service import open_sql
from sleeper.query.sql.tables import AsOf
from sleeper.schema.model import Field, PrimitiveType, schema_from_json

SCHEMA = """{"rowKeyFields":[{"name":"k","type":"IntType"}],
 "valueFields":[{"name":"label","type":"StringType"},{"name":"v","type":"LongType"},
                {"name":"hidden","type":"LongType"}]}"""
CALLERS = {
    "columns": {"valueFields": ["v"]},
    "rows": {"iterator": "RowSecurity", "config": "label,public"},
    "both": {"valueFields": ["v"], "iterator": "RowSecurity", "config": "label,public"},
    "all": {},
}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """Keys 0 to 99 over four leaves; every tenth row is secret. A table `open` for all."""
    create_local_instance(tmp_path / "instance", "test")
    opened_instance = open_local_instance(tmp_path / "instance")
    for name in ("t", "open"):
        table = create_table(opened_instance, name, SCHEMA, split_points=[25, 50, 75])
        rows = {
            "k": pa.array(range(100), pa.int32()),
            "label": ["secret" if k % 10 == 0 else "public" for k in range(100)],
            "v": list(range(100)),
            "hidden": list(range(1000, 1100)),
        }
        ingest_rows(opened_instance, name, [pa.record_batch(rows)])
        if name == "t":
            opened_instance.tables.properties.change(
                table.id, {QUERY_CALLERS.name: json.dumps(CALLERS)}
            )
    yield opened_instance
    opened_instance.close()


def sql(instance: Instance, caller: str, statement: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        open_sql(instance, statement, caller=caller).read_all().to_pylist()
    )
    return rows


def test_statement_reads_the_columns_of_its_caller(instance: Instance) -> None:
    assert sql(instance, "columns", "SELECT * FROM t WHERE k = 10") == [{"k": 10, "v": 10}]
    assert set(sql(instance, "rows", "SELECT * FROM t WHERE k = 11")[0]) == {
        "k",
        "label",
        "v",
        "hidden",
    }
    assert sql(instance, "both", "SELECT * FROM t WHERE k = 11") == [{"k": 11, "v": 11}]
    assert sql(instance, "all", "SELECT sum(hidden) AS s FROM t") == [{"s": 104_950}]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) AS n FROM t",
        "SELECT count(v) AS n FROM t",
        "SELECT count(*) AS n FROM t a JOIN t b ON a.k = b.k",
        "SELECT count(*) AS n FROM open WHERE k IN (SELECT k FROM t)",
        "SELECT count(*) AS n FROM open WHERE EXISTS (SELECT 1 FROM t WHERE t.k = open.k)",
        "WITH x AS (SELECT * FROM t) SELECT count(*) AS n FROM x",
        "SELECT count(*) AS n FROM (SELECT * FROM t UNION ALL SELECT * FROM t WHERE k < 0)",
        "SELECT (SELECT count(*) FROM t) AS n",
        "SELECT count(*) AS n FROM public.t",
        "SELECT count(*) AS n FROM datafusion.public.t",
    ],
)
def test_hidden_rows_are_absent(instance: Instance, statement: str) -> None:
    assert sql(instance, "rows", statement) == [{"n": 90}]
    assert sql(instance, "both", statement) == [{"n": 90}]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT hidden FROM t",
        "SELECT k FROM t WHERE hidden > 1050",
        "SELECT k FROM t ORDER BY hidden",
        "SELECT sum(hidden) FROM t",
        "SELECT k FROM t GROUP BY k HAVING max(hidden) > 0",
        "SELECT open.k FROM open JOIN t ON open.hidden = t.hidden",
        "SELECT k FROM open WHERE hidden IN (SELECT t.hidden FROM t)",
        'SELECT "t"."hidden" FROM t',
        "WITH x AS (SELECT * FROM t) SELECT hidden FROM x",
        "SELECT row_number() OVER (ORDER BY hidden) FROM t",
        "SELECT * FROM t WHERE NOT (hidden < 0)",
    ],
)
def test_hidden_columns_are_absent(instance: Instance, statement: str) -> None:
    for caller in ("columns", "both"):
        with pytest.raises(InvalidRequestError, match="hidden"):
            sql(instance, caller, statement)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("EXPLAIN SELECT * FROM t", "EXPLAIN requires unrestricted"),
        ("explain analyze SELECT * FROM t", "EXPLAIN requires unrestricted"),
        (
            "EXPLAIN VERBOSE SELECT * FROM open JOIN t ON t.k = open.k",
            "EXPLAIN requires unrestricted",
        ),
        ("/* x */ EXPLAIN SELECT * FROM t", "EXPLAIN requires unrestricted"),
        ("SELECT * FROM information_schema.columns", "no information_schema"),
        ("SHOW COLUMNS FROM t", "information_schema"),
    ],
)
def test_statements_that_reveal_hidden_rows_are_refused(
    instance: Instance, statement: str, reason: str
) -> None:
    for caller in ("columns", "rows"):
        with pytest.raises(InvalidRequestError, match=reason):
            sql(instance, caller, statement)


def test_describe_shows_the_columns_of_the_caller(instance: Instance) -> None:
    message = sql(instance, "columns", "DESCRIBE t")
    assert [row["column_name"] for row in message] == ["k", "v"]


def test_unknown_caller_is_refused(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="caller 'nobody' may not query table 't'"):
        sql(instance, "nobody", "SELECT 1 FROM t")
    assert sql(instance, "nobody", "SELECT count(*) AS n FROM open") == [{"n": 100}]


def test_query_iterator_runs_after_the_caller_s_restriction(instance: Instance) -> None:
    sums = Processing(aggregations=parse_aggregations("min(label),sum(v),sum(hidden)"))
    result = open_query(instance, "t", Query(processing=sums, limit=5), caller="both").read_all()
    assert result.column_names == ["k", "v"]
    assert result.column("k").to_pylist() == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidRequestError, match="'hidden' is not visible"):
        open_query(instance, "t", Query(columns=("k", "hidden"), version=2), caller="both")


def as_of_both(instance: Instance, caller: str, version: int) -> list[list[dict[str, object]]]:
    """Returns the rows of key 11 at the version, by SQL and by key."""
    regions = make_key_regions(schema_from_json(SCHEMA), [[11]])
    statement = "SELECT * FROM t WHERE k = 11"
    by_sql = open_sql(instance, statement, caller=caller, as_of=AsOf(version))
    by_key = open_query(instance, "t", Query(tuple(regions), version=version), caller=caller)
    return [by_sql.read_all().to_pylist(), by_key.read_all().to_pylist()]


def test_hidden_field_stays_hidden_at_a_version_where_a_visible_one_has_its_name(
    instance: Instance,
) -> None:
    table = instance.table("t")
    change_callers(instance, {})
    with table.state.reading() as state:
        old = state.number
    changes = (
        RenameField("hidden", "h"),
        RenameField("v", "hidden"),
        AddField(Field("v", PrimitiveType.LONG, nullable=True, default=5)),
    )
    change_schema(instance, "t", changes)
    change_callers(instance, {"a": {"valueFields": ["hidden", "v"]}, "b": {"valueFields": ["v"]}})
    assert as_of_both(instance, "a", old) == [[{"k": 11, "v": 11}]] * 2
    assert as_of_both(instance, "b", old) == [[{"k": 11}]] * 2
    clone_table(instance, "t", "clone", old)
    of_clone = "SELECT * FROM clone WHERE k = 11"
    assert sql(instance, "a", of_clone) == [{"k": 11, "v": 11}]
    assert sql(instance, "b", of_clone) == [{"k": 11}]
    newest = {"k": 11, "hidden": 11, "v": 5}
    assert sql(instance, "a", "SELECT k, hidden, v FROM t WHERE k = 11") == [newest]


def test_caller_s_iterator_does_not_read_another_field_of_an_old_version(
    instance: Instance,
) -> None:
    table = instance.table("t")
    change_callers(instance, {})
    with table.state.reading() as state:
        old = state.number
    changes = (
        RenameField("label", "l"),
        AddField(Field("label", PrimitiveType.STRING, nullable=True)),
    )
    change_schema(instance, "t", changes)
    change_callers(instance, {"rows": {"iterator": "RowSecurity", "config": "label,public"}})
    with pytest.raises(InvalidRequestError, match="'label' was another field at this version"):
        as_of_both(instance, "rows", old)
    with pytest.raises(InvalidRequestError, match="'label' was another field at this version"):
        open_query(instance, "t", Query(version=old), caller="rows")


def change_callers(instance: Instance, callers: dict[str, object]) -> None:
    values = {QUERY_CALLERS.name: json.dumps(callers)}
    instance.tables.properties.change(instance.table("t").ref.id, values)
