"""Views of DuckDB over tables: what is pushed down, and rows that are the same without."""

import functools
from collections.abc import Iterator
from operator import and_, or_
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sleeper
from sleeper.duckdb import register_tables
from sleeper.duckdb.predicates import find_regions
from sleeper.errors import InvalidRequestError, NotFoundError

SCHEMA = {
    "rowKeyFields": [{"name": "city", "type": "StringType"}, {"name": "n", "type": "LongType"}],
    "sortKeyFields": [{"name": 'a "b"', "type": "IntType"}],
    "valueFields": [{"name": "v", "type": "DoubleType", "nullable": True}],
}
ROWS = pa.table(
    {
        "city": ["Accra", "Lima", "Lima", "Oslo", "Oslo", "Pune", "Århus"],
        "n": [1, 1, 2, 7, 8, -3, 0],
        'a "b"': pa.array([5, 4, 3, 2, 1, 0, 9], pa.int32()),
        "v": [1.0, None, 2.5, 3.0, None, 4.0, 5.0],
    }
)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path_factory.mktemp("duckdb") / "i") as opened:
        opened.create_table("t", SCHEMA, split_points=["M"]).ingest(ROWS)
        yield opened


@pytest.fixture
def connection(instance: sleeper.Instance) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        register_tables(opened, instance)
        opened.register("plain", ROWS)
        yield opened


@pytest.mark.parametrize(
    "where",
    [
        "city = 'Lima'",
        "'Lima' = city",
        "city = 'Århus'",
        "city = 'Oslo' AND n > 7",
        "n >= 2 AND v < 3.5",
        "n < -2 OR city = 'Lima'",
        "n BETWEEN 1 AND 7",
        "city IN ('Accra', 'Pune')",
        "city > 'Lima' AND city <= 'Pune'",
        "city > 'Lima' AND city < 'Lima'",
        "n IS NULL",
        "v IS NULL",
        "city LIKE 'L%'",
        "n + 1 = 2",
        "n < 1.5",
        '"a ""b""" > 3 AND city < \'P\'',
        "NOT (city = 'Lima')",
    ],
)
def test_rows_are_those_that_duckdb_selects(
    connection: duckdb.DuckDBPyConnection, where: str
) -> None:
    for columns in ("*", "v", "count(*)", 'sum("a ""b""")'):
        statement = f"SELECT {columns} FROM {{}} WHERE {where} ORDER BY ALL"
        assert (
            connection.sql(statement.format("t")).fetchall()
            == connection.sql(statement.format("plain")).fetchall()
        )


def test_joins_and_limits(connection: duckdb.DuckDBPyConnection) -> None:
    joined = "SELECT count(*) FROM t a JOIN t b USING (city) WHERE a.n = 1"
    assert connection.sql(joined).fetchall() == [(3,)]
    assert len(connection.sql("SELECT city FROM t LIMIT 2").fetchall()) == 2
    assert connection.sql("SELECT count(*) FROM t").fetchall() == [(len(ROWS),)]


CITY, N, V = pc.field("city"), pc.field("n"), pc.field("v")


@pytest.mark.parametrize(
    "predicate",
    [
        CITY == "Lima",
        pc.scalar("Lima") < CITY,
        (CITY == "Oslo") & (N > 7) & (V > 0.0),
        (N <= -3) | (N >= 8),
        (N >= 2) & (N < 2),
        N == 0,
    ],
    ids=str,
)
def test_comparisons_with_keys_narrow_the_regions(
    instance: sleeper.Instance, predicate: pc.Expression
) -> None:
    regions = find_regions(instance.table("t").schema, ROWS.schema, predicate)
    assert regions is not None
    for row in ROWS.to_pylist():
        is_found = ROWS.schema.empty_table().from_pylist([row], ROWS.schema).filter(predicate)
        if is_found.num_rows:
            assert any(region.contains((row["city"], row["n"])) for region in regions)
    assert not any(region.contains(("Lima", 5)) for region in regions) or "Lima" in str(predicate)


@pytest.mark.parametrize(
    "predicate",
    [V > 2.0, (CITY == "Lima") | (V > 2.0), ~(CITY == "Lima"), N.is_null(), N == V, CITY != "a"],
    ids=str,
)
def test_other_predicates_do_not_narrow(
    instance: sleeper.Instance, predicate: pc.Expression
) -> None:
    assert find_regions(instance.table("t").schema, ROWS.schema, predicate) is None


MANY = [(pc.field("city") == f"c{each}") | (pc.field("n") > each) for each in range(40)]


@pytest.mark.parametrize("joined", [functools.reduce(op, MANY) for op in (and_, or_)])
def test_predicates_of_many_levels_do_not_narrow(
    instance: sleeper.Instance, joined: pc.Expression
) -> None:
    schema = instance.table("t").schema
    assert find_regions(schema, ROWS.schema, joined) is None
    # Parentheses in values are no levels, those in names may be.
    plain = ROWS.schema.remove(ROWS.schema.get_field_index('a "b"'))
    for text in ("(" * 40, '\\"' + "(" * 40, ")" * 40):
        assert find_regions(schema, plain, text == CITY) is not None
        assert find_regions(schema, plain, functools.reduce(and_, [*MANY, text == CITY])) is None
    renamed = ROWS.rename_columns(["city", "n", "(", ")"]).schema
    assert find_regions(schema, renamed, CITY == "Lima") is not None
    assert find_regions(schema, renamed, joined) is None


def test_rows_of_many_predicates(connection: duckdb.DuckDBPyConnection) -> None:
    where = " OR ".join(f"(n = {each} AND v < {each})" for each in range(40))
    for names in ("city, n", "count(*)"):
        statement = f"SELECT {names} FROM {{}} WHERE {where} ORDER BY ALL"
        assert (
            connection.sql(statement.format("t")).fetchall()
            == connection.sql(statement.format("plain")).fetchall()
        )


def test_arrow_repeats_functions_in_each_level_of_a_message() -> None:
    """Fails when `_LEVELS_MAX` is not needed (github.com/apache/arrow/issues/48761)."""
    sizes = [
        len(bytes(functools.reduce(or_, MANY[:number]).to_substrait(ROWS.schema)))
        for number in (4, 8)
    ]
    assert sizes[1] > 8 * sizes[0]


def test_only_needed_columns_and_regions_are_queried(
    instance: sleeper.Instance,
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries: list[dict[str, Any]] = []
    query = sleeper.Table.query

    def record(table: sleeper.Table, **arguments: Any) -> sleeper.Rowset:
        queries.append(arguments)
        return query(table, **arguments)

    monkeypatch.setattr(sleeper.Table, "query", record)
    assert connection.sql("SELECT v FROM t WHERE city = 'Accra' AND n = 1").fetchall() == [(1.0,)]
    assert queries[0]["columns"] == ["city", "n", "v"]
    (region,) = queries[0]["regions"]
    assert (region["city"]["min"], region["n"]["min"], region["n"]["max"]) == ("Accra", 1, 2)
    assert connection.sql("SELECT sum(v) FROM t").fetchall() == [(15.5,)]
    assert (queries[1]["columns"], queries[1]["regions"]) == (["v"], [])


def test_versions_and_names(instance: sleeper.Instance) -> None:
    table = instance.create_table("versions", SCHEMA)
    table.ingest(ROWS.slice(0, 2))
    version = table.version
    with duckdb.connect() as old, duckdb.connect() as new:
        register_tables(old, instance, ["versions"], as_of=version)
        register_tables(new, instance, ["versions"])
        table.ingest(ROWS.slice(2))
        count = "SELECT count(*) FROM versions"
        assert (old.sql(count).fetchall(), new.sql(count).fetchall()) == ([(2,)], [(7,)])
        with pytest.raises(NotFoundError):
            register_tables(new, instance, ["none"])


def test_tables_whose_names_are_the_same_in_duckdb_are_refused(tmp_path: Path) -> None:
    with sleeper.create_instance(tmp_path / "i") as instance, duckdb.connect() as connection:
        for number, name in enumerate(["Ärger", "t", "T", "ärger"]):
            instance.create_table(name, SCHEMA).ingest(ROWS.slice(0, number + 1))
        with pytest.raises(InvalidRequestError, match=r"tables '[Tt]' and '[Tt]' have the same"):
            register_tables(connection, instance)
        assert connection.sql("SHOW TABLES").fetchall() == []
        register_tables(connection, instance, ["T", "T", "Ärger", "ärger"])
        for name, rows in (("t", 3), ("Ärger", 1), ("ärger", 4)):
            assert connection.sql(f"SELECT count(*) FROM {name}").fetchall() == [(rows,)]
