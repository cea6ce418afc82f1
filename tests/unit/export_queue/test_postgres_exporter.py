"""The exporter to PostgreSQL: its settings, the receiver's table, and errors of the server."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sleeper.databases.postgresql import DatabaseLogin, PostgresqlConnection
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import RefusedExportsError
from sleeper.export_queue.exporters import check_exporter, open_exporter
from sleeper.export_queue.exporters.postgres import PostgresExporter
from sleeper.instance import Instance
from sleeper.opening import create_instance, open_instance
from sleeper.schema.model import DecimalType, ListType, MapType, PrimitiveType
from tests.export_batches import make_batch, make_queue
from tests.servers.postgres import Postgres

URL = "postgres://writer@db.example:5433/shop"
LONG, STRING = PrimitiveType.LONG, PrimitiveType.STRING


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "instance", "test")
    opened = open_instance(tmp_path / "instance")
    yield opened
    opened.close()


@pytest.mark.parametrize("prefix", ["", "postgres:", "postgresql:"])
@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_a_url_of_either_scheme_is_accepted(instance: Instance, prefix: str, scheme: str) -> None:
    text = f"{prefix}{scheme}://writer@db.example/shop?table=public.counts&sslmode=verify-full"
    check_exporter(instance, make_queue(text))


def test_tls_is_verified_unless_an_option_says_otherwise(instance: Instance) -> None:
    url = "postgres://writer@db.example/shop?table=counts"
    weak = make_queue(f"{url}&sslmode=require")
    for use in (check_exporter, open_exporter):
        with pytest.raises(InvalidRequestError, match=r"sslmode=require connects to db\.ex"):
            use(instance, weak)
    check_exporter(instance, make_queue(url))
    insecure = make_queue(f"{url}&sslmode=require", options={"insecure": "true"})
    check_exporter(instance, insecure)
    assert insecure.exporter.shown == f"{url}&sslmode=require (insecure)"
    with pytest.raises(InvalidRequestError, match="the parameter insecure, which is an option"):
        check_exporter(instance, make_queue(f"{url}&insecure=true"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (URL, "the URL names no table"),
        (f"{URL}?table=a&table=b", "the URL names several tables"),
        (f"{URL}?table=a%3B+drop", "'a; drop' is not the name of a table"),
        (f"{URL}?table=a.b.c", "'a.b.c' is not the name of a table"),
        (f"{URL}?table=a.", "'a.' is not the name of a table"),
        (f"{URL}?table=", "has invalid parameters|is not the name of a table"),
        (f"{URL}?table={'x' * 60}", "has a name of 60 bytes"),
        ("postgres://writer:word@db.example/shop?table=a", "the database URL has a password"),
        ("postgres://writer@db.example?table=a", "the database URL has no database"),
        ("postgres:shop", "the URL names no table"),
        ("postgres:mysql://db.example/shop?table=a", "the URL is of mysql"),
    ],
)
def test_an_invalid_url_is_refused_with_the_queue_and_without_its_password(
    instance: Instance, text: str, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem) as raised:
        check_exporter(instance, make_queue(text))
    assert "export queue 'counts': exporter postgres: " in str(raised.value)
    assert "word@" not in str(raised.value)


def test_an_unknown_option_is_refused(instance: Instance) -> None:
    queue = make_queue(f"{URL}?table=a", options={"tabel": "b"})
    with pytest.raises(InvalidRequestError, match="unknown option 'tabel'"):
        check_exporter(instance, queue)


def test_a_value_without_a_column_type_is_refused(instance: Instance) -> None:
    queue = make_queue(f"{URL}?table=a", values={"tags": MapType(STRING, LONG)})
    with pytest.raises(InvalidRequestError, match="value 'tags' has type MapType"):
        check_exporter(instance, queue)


def test_a_missing_driver_is_named_with_its_installation(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'sleeper-store\[postgresql\]'"):
        check_exporter(instance, make_queue(f"{URL}?table=a"))


class Server:
    """A database with a queue that exports to it."""

    def __init__(self, instance: Instance, database: Postgres) -> None:
        self.instance = instance
        self.database = database
        self.exporters: list[PostgresExporter] = []

    def queue(self, table: str = "counts", **settings: Any) -> ExportQueue:
        settings.setdefault("values", {"amount": LONG})
        url = f"{self.database.url}?table={table}"
        return make_queue(url, password="env:RECEIVER_PASSWORD", **settings)

    def open(self, queue: ExportQueue | None = None) -> PostgresExporter:
        opened = open_exporter(self.instance, queue or self.queue())
        assert isinstance(opened, PostgresExporter)
        self.exporters.append(opened)
        return opened

    def send(self, *exports: Any, queue: ExportQueue | None = None) -> None:
        queue = queue or self.queue()
        self.open(queue).export(make_batch(queue, exports))

    def rows(self, statement: str) -> list[Any]:
        return [json.loads(line) for line in self.database.run(statement)]


@pytest.fixture
def server(
    instance: Instance, postgres_database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    monkeypatch.setenv("RECEIVER_PASSWORD", postgres_database.password)
    opened = Server(instance, postgres_database)
    yield opened
    for exporter in opened.exporters:
        exporter.close()


@pytest.mark.slow
def test_a_value_of_every_type_arrives(server: Server) -> None:
    given: dict[str, tuple[Any, Any, Any]] = {
        "an_int": (PrimitiveType.INT, -(2**31), -(2**31)),
        "a_float": (PrimitiveType.FLOAT, 1.5, 1.5),
        "a_double": (PrimitiveType.DOUBLE, 0.1, 0.1),
        "a_boolean": (PrimitiveType.BOOLEAN, False, False),
        "a_time": (
            PrimitiveType.TIMESTAMP,
            datetime(1969, 12, 31, 23, 59, 59, 123456, UTC),
            "1969-12-31T23:59:59.123456+00:00",
        ),
        "a_date": (PrimitiveType.DATE, date(2024, 2, 29), "2024-02-29"),
        "a_decimal": (DecimalType(20, 3), Decimal("-12345678901234567.891"), None),
        "a_document": (PrimitiveType.JSON, '{"a": [1.10, null]}', {"a": [1.1, None]}),
        "numbers": (ListType(LONG), [1, -2], [1, -2]),
        "texts": (ListType(STRING), ["a", "{}"], ["a", "{}"]),
    }
    keys = {"id": PrimitiveType.INT, "part": PrimitiveType.BYTE_ARRAY}
    queue = server.queue(keys=keys, values={name: kind for name, (kind, _, _) in given.items()})
    server.send(
        ((1, b"\x00"), {name: value for name, (_, value, _) in given.items()}, 1),
        ((2, b""), dict.fromkeys(given), 2),
        queue=queue,
    )
    full, empty = server.rows("SELECT row_to_json(counts) FROM counts ORDER BY id")
    assert full.pop("a_decimal") == pytest.approx(-12345678901234567.891)
    assert server.database.run("SELECT a_decimal FROM counts WHERE id = 1") == [
        "-12345678901234567.891"
    ]
    found = {name: expected for name, (_, _, expected) in given.items() if expected is not None}
    assert full == {"id": 1, "part": "\\x00", "sequence": 1, **found}
    assert empty == {"id": 2, "part": "\\x", "sequence": 2, **dict.fromkeys(given)}


@pytest.mark.slow
def test_names_are_quoted(server: Server) -> None:
    server.database.run('CREATE SCHEMA "my ""schema"')
    queue = server.queue(
        "%22my+%22%22schema%22.%22x+--+y%22",
        keys={"select": STRING, 'a"b': STRING},
        values={"Order": LONG, "drop table x; --": LONG},
    )
    server.send((("k", "l"), {"Order": 1, "drop table x; --": 2}, 3), queue=queue)
    server.send((("k", "l"), None, 4), (("m", "n"), {"Order": 5}, 5), queue=queue)
    found = server.rows('SELECT row_to_json(x) FROM "my ""schema"."x -- y" AS x')
    assert found == [
        {"select": "m", 'a"b': "n", "Order": 5, "drop table x; --": None, "sequence": 5}
    ]


@pytest.mark.slow
def test_rows_of_an_existing_table_are_guarded_too(server: Server) -> None:
    server.database.run(
        "CREATE TABLE counts (name varchar(20) UNIQUE, amount numeric, sequence numeric, "
        "more text DEFAULT 'more');"
        "INSERT INTO counts VALUES ('a', 1, 10, 'own'), ('b', 1, 10, 'own')"
    )
    server.send(("a", {"amount": 9}, 9), ("b", {"amount": 11}, 11), ("c", {"amount": 12}, 12))
    assert server.rows("SELECT row_to_json(counts) FROM counts ORDER BY name") == [
        {"name": "a", "amount": 1, "sequence": 10, "more": "own"},
        {"name": "b", "amount": 11, "sequence": 11, "more": "own"},
        {"name": "c", "amount": 12, "sequence": 12, "more": "more"},
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("name text PRIMARY KEY, amount bigint", "has no column 'sequence'"),
        ("name text PRIMARY KEY, amounts bigint, sequence bigint", "did you mean amounts"),
        ("name text, amount bigint, sequence bigint", "no unique or exclusion constraint"),
        ("name text PRIMARY KEY, amount date, sequence bigint", 'column "amount" is of type date'),
    ],
)
def test_exports_wait_while_the_table_does_not_fit(
    server: Server, columns: str, problem: str
) -> None:
    server.database.run(f"CREATE TABLE counts ({columns})")
    exporter = server.open()
    batch = make_batch(server.queue(), [("a", {"amount": 1}, 1)])
    with pytest.raises(UnavailableError, match=problem):
        exporter.export(batch)
    server.database.run("DROP TABLE counts")
    exporter.export(batch)
    assert server.database.run("SELECT name FROM counts") == ["a"]


@pytest.mark.slow
def test_exports_wait_while_the_login_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = server.open()
    batch = make_batch(server.queue(), [("a", {"amount": 1}, 1)])
    monkeypatch.setenv("RECEIVER_PASSWORD", "not-the-password")
    with pytest.raises(UnavailableError, match="password authentication failed") as raised:
        exporter.export(batch)
    assert "not-the-password" not in str(raised.value)
    monkeypatch.delenv("RECEIVER_PASSWORD")
    with pytest.raises(UnavailableError, match="variable RECEIVER_PASSWORD is not set"):
        exporter.export(batch)
    monkeypatch.setenv("RECEIVER_PASSWORD", server.database.password)
    exporter.export(batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "constraint", ["CHECK (amount < 10)", "CHECK (amount <> 99) NOT NULL UNIQUE"]
)
def test_a_value_that_the_table_refuses_is_an_error_of_the_batch_and_changes_nothing(
    server: Server, constraint: str
) -> None:
    server.database.run(
        f"CREATE TABLE counts (name text PRIMARY KEY, amount bigint {constraint}, sequence bigint)"
    )
    exporter = server.open()
    with pytest.raises(InvalidRequestError, match="violates check constraint"):
        exporter.export(
            make_batch(server.queue(), [("a", {"amount": 1}, 1), ("b", {"amount": 99}, 2)])
        )
    assert server.database.run("SELECT * FROM counts") == []
    exporter.export(make_batch(server.queue(), [("a", {"amount": 1}, 1)]))
    assert server.database.run("SELECT * FROM counts") == ["a|1|1"]


@pytest.mark.slow
def test_only_exports_with_nul_characters_are_refused(server: Server) -> None:
    queue = server.queue(values={"word": STRING})
    batch = make_batch(
        queue,
        [("a", {"word": "x"}, 1), ("a", {"word": "x\0"}, 2), ("b\0", None, 3), ("c", {}, 4)],
    )
    with pytest.raises(RefusedExportsError) as raised:
        server.open(queue).export(batch)
    assert raised.value.reasons == {
        1: "field 'word' has a NUL character (expected text without it)",
        2: "field 'name' has a NUL character (expected text without it)",
    }
    assert server.database.run("SELECT name, sequence FROM counts ORDER BY 1") == ["a|1", "c|4"]


@pytest.mark.slow
def test_a_statement_that_takes_too_long_is_canceled_and_tried_again(server: Server) -> None:
    queue = replace(server.queue(), timeout_seconds=1)
    server.send(("a", {"amount": 1}, 1), queue=queue)
    exporter = server.open(queue)
    newer = make_batch(queue, [("a", {"amount": 2}, 2)])
    with _locked(server.database, "counts") as unlock:
        with pytest.raises(UnavailableError, match="statement timeout"):
            exporter.export(newer)
        unlock()
    exporter.export(newer)
    assert server.database.run("SELECT * FROM counts") == ["a|2|2"]


@pytest.mark.slow
def test_a_terminated_connection_is_opened_again(server: Server) -> None:
    exporter = server.open()
    exporter.export(make_batch(server.queue(), [("a", {"amount": 1}, 1)]))
    server.database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'sleeper' AND datname = current_database()"
    )
    newer = make_batch(server.queue(), [("a", {"amount": 2}, 2)])
    with pytest.raises(UnavailableError):
        exporter.export(newer)
    exporter.export(newer)
    assert server.database.run("SELECT * FROM counts") == ["a|2|2"]


@pytest.mark.slow
def test_tombstones_are_pruned_after_a_week(server: Server) -> None:
    server.send(("a", None, 1), ("b", None, 2))
    server.database.run("UPDATE counts_gone SET __gone = now() - interval '8 days' WHERE name='a'")
    server.send(("c", None, 3))
    assert server.database.run("SELECT name, sequence FROM counts_gone ORDER BY 1") == [
        "b|2",
        "c|3",
    ]


@pytest.mark.slow
def test_concurrent_exporters_of_a_bucket_keep_the_newest(server: Server) -> None:
    """Two workers have a bucket if the claim of one has ended."""
    rounds, queue = 40, server.queue()
    exporters = [server.open(queue) for _ in range(2)]
    # Even rounds end with the end of the key, odd ones with a value.
    batches = [
        [
            make_batch(queue, [(f"k{n}", {"amount": n} if n % 2 else None, 2)]),
            make_batch(queue, [(f"k{n}", None if n % 2 else {"amount": n}, 1)]),
        ]
        for n in range(rounds)
    ]
    together = threading.Barrier(2)
    problems: list[BaseException] = []

    def run(worker: int) -> None:
        try:
            for pair in batches:
                together.wait(timeout=30)
                exporters[worker].export(pair[worker])
        except BaseException as error:
            problems.append(error)
            together.abort()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    found = server.database.run("SELECT amount FROM counts ORDER BY 1")
    assert found == [str(n) for n in range(rounds) if n % 2]


@contextmanager
def _locked(database: Postgres, table: str) -> Iterator[Callable[[], None]]:
    """Locks a table in another session until the yielded function is called."""
    url = database.url.replace(f"{database.user}@", "")
    login = DatabaseLogin(url, database.user, database.password, "test")
    connection = PostgresqlConnection(login, lambda _, text: UnavailableError(text))
    connection.execute("BEGIN")
    connection.execute(f"LOCK TABLE {table}")
    yield lambda: connection.execute("COMMIT")
    connection.close()
