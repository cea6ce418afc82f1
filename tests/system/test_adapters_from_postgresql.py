"""Adapters from a real PostgreSQL database through ADBC."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sleeper.adapters import postgresql
from sleeper.adapters.report import show_adapter
from sleeper.adapters.run import AdapterRun, run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.adapters.store import AdapterStore
from sleeper.admin.tables import create_table
from sleeper.databases.columns import select_rows
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.run import IngestProgress
from sleeper.instance import Instance
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.opening import create_instance, open_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.reports.output import json_rows
from tests.servers.postgres import Postgres

PASSWORD = "env:SHOP_PASSWORD"
SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType", "nullable": True}],
}
SNAPSHOT = {"sleeper.table.type": "snapshot"}


@pytest.fixture
def database(postgres_database: Postgres, monkeypatch: pytest.MonkeyPatch) -> Postgres:
    monkeypatch.setenv("SHOP_PASSWORD", postgres_database.password)
    return postgres_database


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "here")
    opened = open_instance(tmp_path / "here")
    create_table(opened, "sink", json.dumps(SCHEMA), SNAPSHOT)
    yield opened
    opened.close()


def create(instance: Instance, database: Postgres, sink: str = "sink", **options: Any) -> None:
    given = {"table": "orders", "password": PASSWORD, **options}
    create_adapter(instance, NewAdapter("orders", [database.url], sink, **given))


def rows_of(instance: Instance, version: int | None = None) -> list[tuple[int, str | None]]:
    with open_query(instance, "sink", Query(version=version)) as result:
        return [(row["id"], row["v"]) for row in result.read_all().to_pylist()]


def test_inserts_updates_and_deletes_show_after_each_run(
    instance: Instance, database: Postgres
) -> None:
    database.run("CREATE TABLE orders (id bigint, v text, unused xml)")
    database.run("INSERT INTO orders VALUES (1,'a'), (2,'b'), (3,'c'), (4,'d')")
    create(instance, database)
    versions: list[AdapterRun] = [run_adapter(instance, "orders")]
    seen = [rows_of(instance)]
    for change in (
        "INSERT INTO orders VALUES (5, NULL)",
        "DELETE FROM orders WHERE id = 2; UPDATE orders SET v = 'z' WHERE id = 1",
        "INSERT INTO orders VALUES (6, 'f')",
        "DELETE FROM orders",
    ):
        database.run(change)
        versions.append(run_adapter(instance, "orders"))
        seen.append(rows_of(instance))
    first: list[tuple[int, str | None]] = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert seen == [
        first,
        [*first, (5, None)],
        [(1, "z"), (3, "c"), (4, "d"), (5, None)],
        [(1, "z"), (3, "c"), (4, "d"), (5, None), (6, "f")],
        [],
    ]
    shown = list(json_rows(show_adapter(instance, "orders", 9)[1]))
    assert [each["rows"] for each in shown] == [0, 5, 4, 5, 4]
    assert [each["version"] for each in reversed(shown)] == [run.number for run in versions]
    host = f"postgresql://127.0.0.1:{database.port}/{database.name}"
    assert {each["source"] for each in shown} == {f"{host} orders"}


TYPES = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE orders (
    id smallint, "Two Words" positive, big numeric(12, 2), whole numeric, ratio real, exact float8,
    flag boolean, body bytea, day date, local timestamp, zoned timestamptz, label varchar(9),
    code char(4), key uuid, doc jsonb, written json, feeling mood, address inet,
    lasts interval, at time,
    tags text[], counts int[], object oid, amount numeric(40, 3), nothing int);
INSERT INTO orders VALUES (1, 2, 4.50, 12345678901234567, 0.1, 0.1, true, '\\x00ff',
    '1969-07-20', '2020-01-01 01:02:03.456789', '2020-01-01 01:02:03+02', 'ünï', 'ab',
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": [1]}', '{"a":  1.10}', 'sad', '10.0.0.1/8',
    '1 day 2 hours',
    '01:02:03.5', '{a,"b,c"}', '{1,2}', 4000000000, 1.5, NULL);
"""
FIELDS: dict[str, tuple[Any, Any]] = {
    "id": ("LongType", 1),
    "two_words": ("IntType", 2),
    "shop": ("StringType", "eu"),
    "big": ({"DecimalType": {"precision": 12, "scale": 2}}, Decimal("4.50")),
    "whole": ("LongType", 12345678901234567),
    "ratio": ("FloatType", pytest.approx(0.1)),
    "exact": ("DoubleType", 0.1),
    "flag": ("BooleanType", True),
    "body": ("ByteArrayType", b"\x00\xff"),
    "day": ("DateType", date(1969, 7, 20)),
    "local": ("TimestampType", datetime(2020, 1, 1, 1, 2, 3, 456789, UTC)),
    "zoned": ("TimestampType", datetime(2019, 12, 31, 23, 2, 3, 0, UTC)),
    "label": ("StringType", "ünï"),
    "code": ("StringType", "ab"),
    "key": ("StringType", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "doc": ("StringType", '{"a": [1]}'),
    "written": ("JSONType", '{"a":  1.10}'),
    "feeling": ("StringType", "sad"),
    "address": ("StringType", "10.0.0.1/8"),
    "lasts": ("StringType", "P1DT2H"),
    "at": ("StringType", "01:02:03.5"),
    "tags": ({"ListType": {"elementType": "StringType"}}, ["a", "b,c"]),
    "counts": ({"ListType": {"elementType": "LongType"}}, [1, 2]),
    "object": ("LongType", 4_000_000_000),
    "amount": ({"DecimalType": {"precision": 10, "scale": 3}}, Decimal("1.500")),
    "nothing": ("LongType", None),
}


def test_every_type_arrives_without_a_change(instance: Instance, database: Postgres) -> None:
    database.run(TYPES)
    values = [
        {"name": name, "type": kind, "nullable": True}
        for name, (kind, _) in FIELDS.items()
        if name != "id"
    ]
    create_table(instance, "typed", json.dumps({**SCHEMA, "valueFields": values}))
    columns, constants = {"two_words": "Two Words"}, {"shop": "eu"}
    create(instance, database, "typed", columns=columns, constants=constants)
    run_adapter(instance, "orders")
    with open_query(instance, "typed", Query()) as result:
        (row,) = result.read_all().to_pylist()
    assert row == {name: value for name, (_, value) in FIELDS.items()}


@pytest.mark.parametrize(
    ("column", "value", "kind", "error"),
    [
        ("numeric", "'NaN'", {"DecimalType": {"precision": 9, "scale": 2}}, "'NaN': expected a de"),
        ("numeric", "1.234", {"DecimalType": {"precision": 9, "scale": 2}}, "1.234"),
        ("date", "'infinity'", "DateType", "infinity"),
        ("timestamptz", "'-infinity'", "TimestampType", "infinity"),
        ("bigint", "3000000000", "IntType", "3000000000"),
        ("text", "NULL", "StringType", "null, but the field is not nullable"),
        (
            "int[]",
            "'{{1,2},{3,4}}'",
            {"ListType": {"elementType": "LongType"}},
            "null inside a list",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_named_by_its_key(
    column: str, value: str, kind: Any, error: str, instance: Instance, database: Postgres
) -> None:
    database.run(f"CREATE TABLE orders (id bigint, w {column})")
    database.run(f"INSERT INTO orders VALUES (71, {value})")
    schema = {**SCHEMA, "valueFields": [{"name": "w", "type": kind}]}
    create_table(instance, "typed", json.dumps(schema))
    create(instance, database, "typed")
    with pytest.raises(InvalidRequestError) as raised:
        run_adapter(instance, "orders")
    text = str(raised.value)
    assert "orders: row with id 71: field 'w'" in text
    assert error in text


def test_what_does_not_fit_is_found_at_the_creation(
    instance: Instance, database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE orders (id bigint, v int, label text)")
    monkeypatch.setenv("WRONG", "not-the-password")
    where = f"postgresql://127.0.0.1:{database.port}/{database.name}"
    for options, error in (
        ({"table": "nosuch"}, f'{where} nosuch: relation "nosuch" does not exist, LINE 1: '),
        ({"table": "orders; DROP TABLE orders"}, "is not the name of a table"),
        ({"table": None, "query": "SELEC 1"}, "(query): syntax error at or near"),
        ({"table": None, "query": "SELECT 1 AS id"}, "(query) has no column 'v'"),
        ({}, f"{where} orders: column 'v' has the type int4, which does not fit the field's type"),
        ({"password": "env:WRONG"}, f"{where}: cannot connect: password authentication failed"),
        ({"password": None}, "failed: no password supplied (expected a password: env:"),
        ({"user": "nobody"}, "user 'nobody' is not the user 'test' of the URL"),
        ({"partition_column": "id", "engine": "adbc"}, "reads with one connection"),
    ):
        with pytest.raises(InvalidRequestError) as raised:
            create(instance, database, **options)
        assert error in str(raised.value)
        assert "not-the-password" not in str(raised.value)
    assert AdapterStore(instance.storage.root).names() == ()
    create(instance, database, table=None, query="SELECT id, label AS v FROM orders -- all")
    assert run_adapter(instance, "orders").rows == 0


def test_a_database_that_is_away_is_unavailable_with_its_reason(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"table": "orders"}
    for url, error in (
        ("postgresql://me@127.0.0.1:1/shop", "port 1 failed: Connection refused"),
        ("postgresql://me@nosuch.invalid/shop", "could not translate host name"),
    ):
        with pytest.raises(UnavailableError, match=error):
            create_adapter(instance, NewAdapter("orders", [url], "sink", **options))
    create_adapter(instance, NewAdapter("orders", [url], "sink", **options, check=False))
    with pytest.raises(UnavailableError, match="cannot connect: could not translate"):
        run_adapter(instance, "orders")
    (shown,) = json_rows(show_adapter(instance, "orders", 9)[1])
    assert shown["state"] == "failed"
    assert "could not translate host name" in str(shown["reason"])


def test_a_dropped_column_is_named_and_the_last_version_stays(
    instance: Instance, database: Postgres
) -> None:
    database.run("CREATE TABLE orders (id bigint, v text)")
    database.run("INSERT INTO orders VALUES (1, 'a')")
    create(instance, database)
    run_adapter(instance, "orders")
    database.run("ALTER TABLE orders RENAME COLUMN v TO w")
    with pytest.raises(InvalidRequestError, match="orders has no column 'v' for the field"):
        run_adapter(instance, "orders")
    assert rows_of(instance) == [(1, "a")]


def test_a_slow_query_ends_at_its_timeout(instance: Instance, database: Postgres) -> None:
    create(instance, database, table=None, query="SELECT 1 AS id, pg_sleep(60)::text AS v")
    adapter = AdapterStore(instance.storage.root).get("orders")
    create_adapter(
        instance,
        NewAdapter(
            "orders",
            [database.url],
            "sink",
            query=adapter.source.query,  # type: ignore[union-attr]
            password=PASSWORD,
            timeout="1s",
            replace=True,
        ),
    )
    with pytest.raises(UnavailableError, match="canceling statement due to statement timeout"):
        run_adapter(instance, "orders")


_BACKENDS = (
    "FROM pg_stat_activity WHERE application_name = 'sleeper' AND datname = current_database()"
)


def test_a_connection_killed_in_the_middle_leaves_nothing(
    instance: Instance, database: Postgres
) -> None:
    database.run("CREATE TABLE orders AS SELECT 1::bigint AS id, 'a' AS v")
    create(instance, database)
    run_adapter(instance, "orders")
    # Several batches of the driver.
    database.run(
        "CREATE OR REPLACE VIEW many AS SELECT g AS id, repeat('x', 1000) AS v"
        " FROM generate_series(1::bigint, 60000) AS g"
    )
    create_adapter(
        instance, NewAdapter("many", [database.url], "sink", table="many", password=PASSWORD)
    )
    killed: list[int] = []

    def kill(rows: int) -> None:
        if not killed:
            database.run(f"SELECT pg_terminate_backend(pid) {_BACKENDS}")
        killed.append(rows)

    ended = r"many: .*(terminating|closed the connection|unexpected eof)"
    with pytest.raises(UnavailableError, match=ended):
        run_adapter(instance, "many", "r1", IngestProgress(rows_read=kill))
    assert killed
    assert rows_of(instance) == [(1, "a")]
    assert run_adapter(instance, "many", "r1").rows == 60_000


_SLEEPING = f"EXISTS (SELECT 1 {_BACKENDS} AND wait_event = 'PgSleep')"


def wait_until(database: Postgres, condition: str) -> None:
    """Waits for half a minute at most."""
    database.run(
        f"SET statement_timeout = '30s'; DO $$ BEGIN WHILE NOT ({condition}) LOOP"
        " PERFORM pg_stat_clear_snapshot(); END LOOP; END $$"
    )


def test_a_failed_run_ends_its_query(instance: Instance, database: Postgres) -> None:
    # More than a batch of the driver, and then a row for which the query sleeps.
    query = (
        "SELECT g AS id, CASE g WHEN 17500 THEN pg_sleep(60)::text ELSE repeat('x', 1000) END AS v"
        " FROM generate_series(1::bigint, 17500) AS g"
    )
    create(instance, database, table=None, query=query)

    def interrupt(_: int) -> None:
        wait_until(database, _SLEEPING)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_adapter(instance, "orders", progress=IngestProgress(rows_read=interrupt))
    wait_until(database, f"NOT EXISTS (SELECT 1 {_BACKENDS})")
    (shown,) = json_rows(show_adapter(instance, "orders", 9)[1])
    assert shown["reason"] == "interrupted"


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT nextval('numbers') AS id, 'a' AS v", "cannot execute nextval.* in a read-only"),
        ("SELECT g AS id, (1 / (g - 9000))::text AS v FROM generate_series(1, 9999) g", "by zero"),
    ],
)
def test_an_error_of_the_query_while_it_is_read_is_a_rejection(
    query: str, error: str, instance: Instance, database: Postgres
) -> None:
    database.run("CREATE SEQUENCE numbers")
    create(instance, database, table=None, query=query)
    with pytest.raises(InvalidRequestError, match=error):
        run_adapter(instance, "orders")


def test_a_signal_ends_a_slow_query(instance: Instance, database: Postgres) -> None:
    create(instance, database, table=None, query="SELECT 1 AS id, pg_sleep(60)::text AS v")

    def send_signal() -> None:
        wait_until(database, _SLEEPING)
        os.kill(os.getpid(), signal.SIGTERM)

    sender, start = threading.Thread(target=send_signal), time.monotonic()
    with interrupted_by_sigterm():
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            run_adapter(instance, "orders")
    sender.join()
    assert time.monotonic() - start < 40
    assert database.run(f"SELECT {_SLEEPING}") == ["f"]
    (shown,) = json_rows(show_adapter(instance, "orders", 9)[1])
    assert (shown["state"], shown["reason"]) == ("failed", "interrupted")


RUN_IN_PROCESS = """
import sys
from sleeper.adapters.queued_run import SparkRun
from sleeper.adapters.store import AdapterStore
from sleeper.opening import open_instance
instance = open_instance(sys.argv[1])
SparkRun(instance, AdapterStore(instance.storage.root).get("orders"), "r1").run_in_process()
"""


def test_the_process_of_a_killed_worker_ends(instance: Instance, database: Postgres) -> None:
    create(instance, database, table=None, query="SELECT 1 AS id, pg_sleep(60)::text AS v")
    with subprocess.Popen([sys.executable, "-c", RUN_IN_PROCESS, instance.where]) as worker:
        wait_until(database, _SLEEPING)
        worker.kill()
    wait_until(database, f"NOT {_SLEEPING}")
    wait_for_reason(instance, "interrupted")


def wait_for_reason(instance: Instance, reason: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        (shown,) = json_rows(show_adapter(instance, "orders", 9)[1])
        if shown["reason"] == reason:
            return
        time.sleep(0.05)
    raise AssertionError(shown)


def test_all_rows_are_of_the_moment_at_which_the_read_began(
    instance: Instance, database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE orders AS SELECT 1::bigint AS id, 'a' AS v")
    create(instance, database)

    def insert_first(*arguments: Any) -> str:
        # The columns have been read.
        database.run("INSERT INTO orders VALUES (2, 'b')")
        return select_rows(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(postgresql, "select_rows", insert_first)
        run_adapter(instance, "orders")
    assert rows_of(instance) == [(1, "a")]


def test_no_text_contains_the_password(
    instance: Instance,
    database: Postgres,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    database.run("CREATE TABLE orders AS SELECT 1::bigint AS id, 'a' AS v")
    secret = "s3cret' \\ pass=word"
    role = f"reader_{database.name}"
    quoted = secret.replace("'", "''")
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD '{quoted}'; GRANT SELECT ON orders TO {role}")
    texts: list[str] = []
    try:
        monkeypatch.setenv("SHOP_PASSWORD", secret)
        url = database.url.replace("test@", f"{role}@")
        options: dict[str, Any] = {"table": "orders", "password": PASSWORD}
        create_adapter(instance, NewAdapter("orders", [url], "sink", **options))
        assert run_adapter(instance, "orders").rows == 1
        database.run(f"REVOKE SELECT ON orders FROM {role}")
        with pytest.raises(InvalidRequestError, match="permission denied") as raised:
            run_adapter(instance, "orders")
        texts.append(str(raised.value))
        with pytest.raises(InvalidRequestError, match="permission denied for table orders"):
            create_adapter(instance, NewAdapter("orders", [url], "sink", **options, replace=True))
        monkeypatch.setenv("SHOP_PASSWORD", f"{secret} no")
        with pytest.raises(InvalidRequestError, match="authentication failed") as raised:
            run_adapter(instance, "orders")
        texts.append(f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}")
    finally:
        database.run(f"DROP OWNED BY {role}; DROP ROLE {role}")
    texts += [record.getMessage() for record in caplog.records]
    texts += [str(row) for listing in show_adapter(instance, "orders", 9) for row in listing.rows]
    assert len(texts) > 3
    found = subprocess.run(["grep", "-r", "-l", "s3cret", str(tmp_path)], capture_output=True)
    assert (found.returncode, found.stdout) == (1, b"")
    assert not any("s3cret" in text for text in texts)
