"""Databases are staged by Spark: all types, parts, one moment, and failures."""

import json
import logging
import threading
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sleeper.adapters.column_mapping import NO_MAPPING, ColumnMapping
from sleeper.adapters.definition import DatabaseSource, Engine
from sleeper.adapters.spark import jdbc
from sleeper.adapters.spark.jdbc import StagedRows, check_database, stage_database
from sleeper.databases.url import DatabaseKind, split_user
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError
from sleeper.schema.model import Schema, schema_from_json
from sleeper.spark.jdbc_driver import DRIVERS_VARIABLE, JdbcDatabase, find_jar
from sleeper.storage.location import DataRoot
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.process import free_ports

Database = Postgres | MariaDB
Rows = list[dict[str, Any]]


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


def source_of(database: Database, table: str | None = "orders", **more: Any) -> DatabaseSource:
    url, user = split_user(database.url)
    return DatabaseSource(url, table=table, user=user, **more)


def schema_of(**types: Any) -> Schema:
    """A schema with the row key `id`, a LongType unless given, and nullable values."""
    key = {"name": "id", "type": types.pop("id", "LongType")}
    values = [{"name": name, "type": kind, "nullable": True} for name, kind in types.items()]
    return schema_from_json(json.dumps({"rowKeyFields": [key], "valueFields": values}))


def stage(
    spark: SparkSession,
    folder: Path,
    database: Database,
    source: DatabaseSource,
    schema: Schema,
    mapping: ColumnMapping = NO_MAPPING,
) -> tuple[StagedRows, Rows]:
    """Returns the result and the staged rows by id, and checks that nothing else is staged."""
    root = DataRoot(folder / "root")
    staged = stage_database(spark, source, database.password, schema, root, "staged", mapping)
    tables = [pq.read_table(root.url_of(file.path)) for file in staged.files]
    assert [table.num_rows for table in tables] == [file.rows for file in staged.files]
    listed = {each.path: each.bytes for each in root.list_objects("staged")}
    assert listed == {file.path: file.size_bytes for file in staged.files}
    root.delete(list(listed))
    rows = pa.concat_tables(tables).to_pylist() if tables else []
    return staged, sorted(rows, key=lambda row: row["id"])


def run_after_plan(monkeypatch: pytest.MonkeyPatch, database: Database, statements: str) -> None:
    """Runs the statements when the moment and the parts of a load are known."""
    plan = jdbc._plan

    def plan_and_run(*arguments: Any) -> Any:
        parts = plan(*arguments)
        database.run(statements)
        return parts

    monkeypatch.setattr(jdbc, "_plan", plan_and_run)


def test_no_log_has_the_password(
    spark: SparkSession, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("py4j").setLevel(logging.NOTSET)
    caplog.set_level(logging.DEBUG)
    with suppress(SleeperError):
        check_database(spark, source_of(database), "hunter2", schema_of())
    assert "hunter2" not in caplog.text
    # Its messages of lower levels are none for users.
    assert not logging.getLogger("py4j").isEnabledFor(logging.INFO)


def test_parts_have_each_row_once(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE orders (id bigint, part_of int)")
    values = ", ".join(f"({i}, {'NULL' if i % 7 == 0 else i % 50 - 10})" for i in range(300))
    database.run(f"INSERT INTO orders VALUES {values}")
    bounds: list[tuple[dict[str, str], int]] = [
        ({}, 3),
        ({"lower": "0", "upper": "10"}, 3),
        ({"lower": "100", "upper": "200"}, 1),
    ]
    for more, files in bounds:
        source = source_of(database, partition_column="part_of", partitions=3, **more)
        staged, rows = stage(spark, tmp_path, database, source, schema_of())
        assert [row["id"] for row in rows] == list(range(300))
        assert len(staged.files) == files
        assert (staged.note is None) == isinstance(database, Postgres)
    source = source_of(database, partition_column="part_of", partitions=3)
    mapping = ColumnMapping({"part": "part_of"}, {"shop": "eu"})
    schema = schema_of(part="LongType", shop="StringType")
    _, rows = stage(spark, tmp_path, database, source, schema, mapping)
    expected = [None if i % 7 == 0 else i % 50 - 10 for i in range(300)]
    assert [(row["id"], row["part"], row["shop"]) for row in rows] == [
        (i, part, "eu") for i, part in enumerate(expected)
    ]


def test_an_empty_query_has_no_files(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.run("CREATE TABLE orders (id bigint)")
    query = "SELECT id FROM orders; -- none"
    source = source_of(database, None, query="SELECT id FROM orders -- none", partition_column="id")
    assert stage(spark, tmp_path, database, source, schema_of()) == (StagedRows(()), [])
    with pytest.raises(InvalidRequestError, match=r"\(query\): .*syntax"):
        check_database(
            spark, source_of(database, None, query=query), database.password, schema_of()
        )


_POSTGRES_TYPES: list[tuple[str, str, Any, Any]] = [
    ("smallint", "'-7'", "IntType", -7),
    ("bigint", "'9223372036854775807'", "LongType", 2**63 - 1),
    ("numeric", "'12'", "LongType", 12),
    ("numeric(38,2)", "'123456789012345678901234567890123456.78'",
     {"DecimalType": {"precision": 38, "scale": 2}},
     Decimal("123456789012345678901234567890123456.78")),
    ("numeric", "'0.12345678901234567890123456789'", "StringType",
     "0.12345678901234567890123456789"),
    ("real", "'0.1'", "FloatType", pa.scalar(0.1, pa.float32()).as_py()),
    ("double precision", "'0.1'", "DoubleType", 0.1),
    ("double precision", "'NaN'", "DoubleType", "nan"),
    ("boolean", "true", "BooleanType", True),
    ("text", "'Zoë 😀'", "StringType", "Zoë 😀"),
    ("char(5)", "'ab'", "StringType", "ab"),
    ("bytea", "'\\xff00'", "ByteArrayType", b"\xff\0"),
    ("timestamp", "'1815-12-10 02:03:04.000005'", "TimestampType",
     datetime(1815, 12, 10, 2, 3, 4, 5, UTC)),
    ("timestamptz", "'2024-03-31 02:30:00+02'", "TimestampType",
     datetime(2024, 3, 31, 0, 30, tzinfo=UTC)),
    ("date", "'1582-10-10'", "DateType", date(1582, 10, 10)),
    ("uuid", "'03187e07-053a-4042-9027-df2309b18cc2'", "StringType",
     "03187e07-053a-4042-9027-df2309b18cc2"),
    ("jsonb", """'{"a": [1]}'""", "StringType", '{"a": [1]}'),
    ("mood", "'sad'", "StringType", "sad"),
    ("interval", "'1 day 2 hours'", "StringType", "P1DT2H"),
    ("int[]", "'{1,2}'", {"ListType": {"elementType": "LongType"}}, [1, 2]),
    ("text[]", "'{a,NULL}'", None, None),
]  # fmt: skip
_MARIADB_TYPES: list[tuple[str, str, Any, Any]] = [
    ("tinyint", "-7", "IntType", -7),
    ("tinyint(1)", "1", "BooleanType", True),
    ("tinyint(1)", "5", "IntType", 5),
    ("bit(1)", "0", "BooleanType", False),
    ("bigint unsigned", "9223372036854775807", "LongType", 2**63 - 1),
    ("decimal(38,2)", "'123456789012345678901234567890123456.78'",
     {"DecimalType": {"precision": 38, "scale": 2}},
     Decimal("123456789012345678901234567890123456.78")),
    ("float", "16777215", "FloatType", 16777215.0),
    ("double", "0.1", "DoubleType", 0.1),
    ("longtext", "'Zoë 😀'", "StringType", "Zoë 😀"),
    ("char(5)", "'ab'", "StringType", "ab"),
    ("blob", "x'ff00'", "ByteArrayType", b"\xff\0"),
    ("datetime(6)", "'1815-12-10 02:03:04.000005'", "TimestampType",
     datetime(1815, 12, 10, 2, 3, 4, 5, UTC)),
    ("timestamp null", "'2024-03-31 00:30:00'", "TimestampType",
     datetime(2024, 3, 31, 0, 30, tzinfo=UTC)),
    ("date", "'1582-10-10'", "DateType", date(1582, 10, 10)),
    ("time", "'10:00:01'", "StringType", "10:00:01"),
    ("year", "2024", "IntType", 2024),
    ("uuid", "'03187e07-053a-4042-9027-df2309b18cc2'", "StringType",
     "03187e07-053a-4042-9027-df2309b18cc2"),
    ("json", """'{"a": [1]}'""", "StringType", '{"a": [1]}'),
    ("enum('sad', 'glad')", "'sad'", "StringType", "sad"),
]  # fmt: skip


def test_values_keep_their_meaning(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    is_postgres = isinstance(database, Postgres)
    types = _POSTGRES_TYPES if is_postgres else _MARIADB_TYPES
    columns = ", ".join(f"v{place} {each[0]}" for place, each in enumerate(types))
    values = ", ".join(each[1] for each in types)
    mood = "CREATE TYPE mood AS ENUM ('sad', 'glad');" if is_postgres else "SET time_zone='+00:00';"
    database.run(
        f"{mood} CREATE TABLE orders (id bigint, {columns});"
        f"INSERT INTO orders VALUES (1, {values}); INSERT INTO orders (id) VALUES (2)"
    )
    fields = {f"v{place}": each[2] for place, each in enumerate(types) if each[2] is not None}
    _, rows = stage(spark, tmp_path, database, source_of(database), schema_of(**fields))
    assert {n: "nan" if v != v else v for n, v in rows[0].items()} == {
        "id": 1,
        **{f"v{place}": each[3] for place, each in enumerate(types) if each[2] is not None},
    }
    assert set(rows[1].values()) == {2, None}


def test_parts_by_time(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE orders (id bigint, at timestamp NULL, day date);"
        "INSERT INTO orders VALUES (1, '2024-01-01', '2024-01-01'),"
        "(2, '2024-01-02 12:00:00', '2024-01-02'), (3, NULL, NULL), (4, '2024-01-04', '2024-01-04')"
    )
    for column in ("at", "day"):
        source = source_of(database, partition_column=column, partitions=3)
        staged, rows = stage(spark, tmp_path, database, source, schema_of())
        assert [row["id"] for row in rows] == [1, 2, 3, 4]
        assert sorted(file.rows for file in staged.files) == [1, 1, 2]


def test_all_parts_show_one_moment(
    spark: SparkSession,
    postgres_database: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgres_database.run(
        "CREATE TABLE orders (id bigint); INSERT INTO orders SELECT generate_series(0, 99)"
    )
    run_after_plan(
        monkeypatch,
        postgres_database,
        "UPDATE orders SET id = (id + 50) % 100; DELETE FROM orders "
        "WHERE id < 10; INSERT INTO orders VALUES (7000), (-7000)",
    )
    source = source_of(postgres_database, partition_column="id", partitions=4)
    staged, rows = stage(spark, tmp_path, postgres_database, source, schema_of())
    assert [row["id"] for row in rows] == list(range(100))
    assert len(staged.files) == 4
    assert staged.note is None
    assert postgres_database.run(
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    ) == ["0"]


def test_a_lost_connection_with_the_moment_of_all_parts_may_be_retried(
    spark: SparkSession,
    postgres_database: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgres_database.run("CREATE TABLE orders AS SELECT 1::bigint AS id UNION SELECT 2")
    run_after_plan(
        monkeypatch,
        postgres_database,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
    )
    source = source_of(postgres_database, partition_column="id", partitions=2)
    with pytest.raises(UnavailableError, match="the connection that keeps the moment of all parts"):
        stage(spark, tmp_path, postgres_database, source, schema_of())


def test_a_killed_connection_adds_no_row_twice(
    spark: SparkSession, postgres_database: Postgres, tmp_path: Path
) -> None:
    name = postgres_database.name
    postgres_database.run(
        "CREATE TABLE orders (id bigint); INSERT INTO orders SELECT generate_series(0, 99);"
        "CREATE FUNCTION wait(id bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN"
        " IF id = 50 AND current_setting('test.opened', true) IS NULL"
        " THEN PERFORM pg_sleep(100); END IF; RETURN id; END $$"
    )
    waiting = f"FROM pg_stat_activity WHERE datname = '{name}' AND wait_event = 'PgSleep'"
    kill = threading.Thread(
        target=postgres_database.run,
        args=[
            f"DO $$ BEGIN WHILE NOT EXISTS (SELECT 1 {waiting}) LOOP"
            " PERFORM pg_stat_clear_snapshot(); END LOOP; END $$;"
            f"ALTER DATABASE {name} SET test.opened = 'yes';"
            f"SELECT pg_terminate_backend(pid) {waiting};"
        ],
    )
    query = "SELECT wait(id) AS id FROM orders"
    source = source_of(postgres_database, None, query=query, fetch_rows=10, engine=Engine.SPARK)
    root = DataRoot(tmp_path / "root")
    kill.start()
    staged = stage_database(spark, source, postgres_database.password, schema_of(), root, "staged")
    kill.join()
    rows = pa.concat_tables([pq.read_table(root.url_of(file.path)) for file in staged.files])
    assert sorted(rows["id"].to_pylist()) == list(range(100))


def test_a_slow_query_ends(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    sleep = "pg_sleep(20)" if isinstance(database, Postgres) else "SLEEP(20)"
    query = f"SELECT 1 AS id, {sleep} AS slept"
    source = source_of(database, None, query=query, timeout_seconds=1)
    with pytest.raises(UnavailableError) as caught:
        stage(spark, tmp_path, database, source, schema_of())
    text = str(caught.value)
    assert text.startswith(f"{source.describe()}: ")
    assert "statement timeout" in text or "max_statement_time" in text


def test_a_missing_driver_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "postgresql-42.7.4.jar"
    jar.touch()
    monkeypatch.setenv(DRIVERS_VARIABLE, f"{tmp_path / 'none'}:{tmp_path}")
    assert find_jar(DatabaseKind.POSTGRESQL) == jar
    monkeypatch.setattr(JdbcDatabase, "_registers", lambda *_: False)
    source = DatabaseSource("mysql://db.example/shop", table="orders")
    with pytest.raises(InvalidRequestError) as caught:
        check_database(spark, source, None, schema_of())
    assert str(caught.value) == (
        "mysql://db.example/shop orders: Spark has no JDBC driver org.mariadb.jdbc.Driver "
        "(expected its jar in /opt/sleeper/drivers, /usr/share/java or a folder of "
        "SLEEPER_JDBC_DRIVERS; Debian has it in the package libmariadb-java)"
    )


def test_errors_name_the_cause(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE orders (id bigint, name varchar(20), amount decimal(10,3), flag int)"
    )
    database.run("INSERT INTO orders VALUES (1, 'a', 1.25, 1), (17, 'b', 1.375, 1)")

    def fails(source: DatabaseSource, schema: Schema, password: str = database.password) -> str:
        with pytest.raises((InvalidRequestError, UnavailableError)) as caught:
            check_database(spark, source, password, schema)
        assert password not in str(caught.value)
        return f"{type(caught.value).__name__} {caught.value}"

    where = source_of(database).describe()
    assert "port" not in where
    nothing = fails(source_of(database, "nothing"), schema_of())
    assert nothing.startswith("InvalidRequestError")
    assert "nothing" in nothing
    assert "exist" in nothing
    wrong = fails(source_of(database), schema_of(), "a wrong password")
    assert wrong.startswith(f"InvalidRequestError {where}: ")
    assert fails(source_of(database), schema_of(nme="StringType")).startswith(
        f"InvalidRequestError {where} has no column 'nme' for the field of that name"
    )
    assert "column 'name' has the type" in fails(source_of(database), schema_of(name="LongType"))
    assert "partition column 'name' has the type" in fails(
        source_of(database, partition_column="name"), schema_of()
    )
    query = "SELECT id FROM orders WHERE name <> '?' -- ?\n AND 1 = "
    check_database(
        spark, source_of(database, None, query=f"{query} 1"), database.password, schema_of()
    )
    assert "(query): the query has a parameter '?' (expected none)" in fails(
        source_of(database, None, query=f"{query} ?"), schema_of()
    )
    (port,) = free_ports(1)
    away = source_of(database)
    url = away.url.replace(str(database.port), str(port))
    refused = fails(DatabaseSource(url, table="orders", user=away.user), schema_of())
    assert refused.startswith("UnavailableError")
    assert "refused" in refused

    amounts = schema_of(amount={"DecimalType": {"precision": 10, "scale": 2}})
    with pytest.raises(InvalidRequestError) as caught:
        stage(spark, tmp_path, database, source_of(database), amounts)
    assert str(caught.value) == (
        f"{where}: row with id 17: field 'amount' (DecimalType(10,2)): '1.375': Rescaling Decimal "
        "value would cause data loss"
    )
