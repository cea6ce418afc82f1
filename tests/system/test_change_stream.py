"""A table of latest rows follows a table of a real PostgreSQL database, by its change stream."""

import csv
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sleeper
from tests.seeds import choose_seed
from tests.servers.postgres import Postgres
from tests.tables.opened import compact

SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "name", "type": "StringType"},
        {"name": "balance", "type": "LongType", "nullable": True},
    ],
}
_TABLE = """
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, balance bigint);
SELECT 'created' FROM pg_create_logical_replication_slot('follower', 'test_decoding');
"""
_CHANGES = "SELECT data FROM pg_logical_slot_get_changes('follower', NULL, NULL);"
_CONTENT = """
COPY (SELECT * FROM customers ORDER BY id) TO STDOUT (FORMAT csv, FORCE_QUOTE (name));
"""
_CHANGE = re.compile(r"table public\.customers: (INSERT|UPDATE|DELETE): (.*)", re.DOTALL)
_COLUMN = re.compile(r"(\w+)\[[^\]]+\]:('(?:[^']|'')*'|\S+)")


@pytest.fixture
def database(postgres_database: Postgres) -> Iterator[Postgres]:
    postgres_database.run(_TABLE)
    yield postgres_database
    # A slot keeps the server's log, and its name is the server's.
    postgres_database.run("SELECT pg_drop_replication_slot('follower')")


def change_randomly(database: Postgres, chosen: random.Random, count: int) -> None:
    """Inserts, updates and deletes rows, some of them in one transaction."""
    statements = []
    for _ in range(count):
        key, other = chosen.randrange(60), chosen.randrange(60)
        name = chosen.choice(["Ada", "Gr''ace", "null", "Ünal, B.", "id[bigint]:1", ""])
        balance = chosen.choice(["NULL", "0", "-7", str(chosen.randrange(10**12))])
        statements.append(
            chosen.choices(
                [
                    f"INSERT INTO customers VALUES ({key}, '{name}', {balance})"
                    " ON CONFLICT DO NOTHING;",
                    f"UPDATE customers SET name = '{name}', balance = {balance} WHERE id = {key};",
                    f"DELETE FROM customers WHERE id = {key};",
                    f"UPDATE customers SET id = {other} WHERE id = {key} AND NOT EXISTS"
                    f" (SELECT 1 FROM customers WHERE id = {other});",
                ],
                [5, 3, 2, 1],
            )[0]
        )
        if chosen.random() < 0.2:
            statements.append(chosen.choice(["BEGIN;", "COMMIT;", "ROLLBACK;"]))
    database.run("SET client_min_messages = error;\n" + "\n".join([*statements, "COMMIT;"]))


def read_changes(database: Postgres) -> list[dict[str, Any]]:
    """Returns the changes since the last call, flattened as Debezium's are."""
    changes = []
    for line in database.run(_CHANGES):
        found = _CHANGE.match(line)
        if found is None:
            continue  # the begin or end of a transaction
        operation, text = found.groups()
        old, changed, new = text.partition("new-tuple: ")
        if changed:
            changes.append({"op": "d", **_columns(old)})
        columns = _columns(new if changed else text)
        changes.append({"op": {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}[operation], **columns})
    return [{"name": None, "balance": None, **each} for each in changes]


def _columns(text: str) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, value in _COLUMN.findall(text):
        if value.startswith("'"):
            columns[name] = value[1:-1].replace("''", "'")
        else:
            columns[name] = None if value == "null" else int(value)
    return columns


def test_a_table_of_latest_rows_equals_the_database_after_each_batch(
    database: Postgres, tmp_path: Path
) -> None:
    chosen = random.Random(choose_seed())
    with sleeper.create_instance(tmp_path / "instance") as instance:
        properties = {
            "sleeper.table.rows": "latest",
            "sleeper.table.compaction.files.batch.size": "3",
        }
        table = instance.create_table("rows", SCHEMA, properties, split_points=[30])
        for batch in range(6):
            change_randomly(database, chosen, 150)
            changes = read_changes(database)
            assert {change["op"] for change in changes} == {"c", "u", "d"}
            path = tmp_path / f"{batch}.jsonl"
            path.write_text("".join(json.dumps(change) + "\n" for change in changes))
            table.ingest(path, op_column="op")
            listed = database.run(_CONTENT)
            expected = [
                {"id": int(key), "name": name, "balance": int(balance) if balance else None}
                for key, name, balance in csv.reader(listed)
            ]
            assert expected
            assert table.query().to_arrow().to_pylist() == expected
            if batch % 2:
                compact(instance)
                assert table.query().to_arrow().to_pylist() == expected
        in_sql = instance.sql("SELECT * FROM rows ORDER BY id").to_arrow().to_pylist()
        assert in_sql == expected
