"""Definitions: their validation, JSON and store."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sleeper.adapters.definition import (
    ADAPTERS,
    Adapter,
    DatabaseSource,
    Engine,
    FilesSource,
    Source,
    TableSink,
    TableSource,
)
from sleeper.adapters.store import AdapterStore
from sleeper.errors import ConflictError, DataError, InvalidRequestError, NotFoundError
from sleeper.schedule import Schedule
from sleeper.storage.location import DataRoot

SHOP = "postgresql://shop.example/shop"
SINK = TableSink("orders")
SOURCES: list[Source] = [
    DatabaseSource(SHOP, table="public.orders"),
    DatabaseSource(
        "mariadb://shop.example:3307/shop?sslmode=verify",
        query="SELECT 1 AS id",
        user="reader",
        password="env:SHOP_PASSWORD",
        partition_column="id",
        lower="0",
        upper="10",
        partitions=4,
        fetch_rows=1_000,
        timeout_seconds=60,
    ),
    FilesSource(("/data/a.csv", "s3://b/c/")),
    TableSource("events"),
    TableSource("events", "7"),
]


@pytest.mark.parametrize("source", SOURCES)
def test_a_definition_reads_back_as_it_was_written(source: Source) -> None:
    adapter = Adapter("nightly-orders", source, SINK, Schedule("1h", 1_000))
    assert ADAPTERS.parse(ADAPTERS.format(adapter), "definition") == adapter
    mapped = replace(adapter, columns={"id": "order_id"}, constants={"shop": "eu"})
    assert ADAPTERS.parse(ADAPTERS.format(mapped), "definition") == mapped
    assert '"columns":{"id":"order_id"}' in ADAPTERS.format(mapped).replace(": ", ":")


def test_json_names_the_type_and_leaves_out_what_was_not_given() -> None:
    assert json.loads(ADAPTERS.format(Adapter("a", SOURCES[0], SINK))) == {
        "name": "a",
        "source": {"type": "database", "url": SHOP, "table": "public.orders"},
        "sink": {"table": "orders"},
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sorce": 1}, "unknown member 'sorce'"),
        ({"source": {"type": "kafka"}}, "unknown type of source: 'kafka' (expected one of data"),
        ({"source": {"type": "files"}}, '"source.paths" is missing'),
        ({"source": {"type": "files", "paths": ["a"], "path": "b"}}, "unknown member 'path'"),
        ({"source": {"type": "files", "paths": []}}, "files source has no paths"),
        ({"sink": {"table": "a/b"}}, "table name 'a/b' has '/'"),
        ({"sink": {"tables": "a"}}, "unknown member 'tables'"),
        ({"name": "a/b"}, "adapter name 'a/b' is invalid"),
        ({"columns": ["a"]}, '"columns" is'),
        ({"columns": {"a": ""}}, "mapping of columns: a name is empty"),
        ({"columns": {"a": "b"}, "constants": {"a": "1"}}, "'a' has a column and a constant"),
        ({"source": {"type": "table", "table": "orders"}}, "is both source and sink"),
    ],
)
def test_json_that_is_no_definition_is_refused(change: dict[str, Any], error: str) -> None:
    whole = {"name": "a", "source": {"type": "table", "table": "t"}, "sink": {"table": "orders"}}
    with pytest.raises(InvalidRequestError) as raised:
        ADAPTERS.parse(json.dumps({**whole, **change}), "definition")
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({}, "has neither a table nor a query (expected one"),
        ({"table": "a", "query": "SELECT 1"}, "has a table and a query (expected one of them)"),
        ({"query": " "}, "the table or query is empty"),
        ({"table": "a", "password": "hunter2"}, "the password is not a reference"),
        ({"table": "a", "password": "env:9"}, "not the name of a variable"),
        ({"table": "a", "partitions": 4}, "partitions without a partition column"),
        ({"table": "a", "partition_column": "id", "partitions": 0}, "partitions 0 is out of range"),
        ({"table": "a", "fetch_rows": 5}, "fetch rows 5 given for the engine adbc"),
        ({"table": "a", "timeout_seconds": 0}, "timeout seconds 0 is out of range"),
        (
            {"table": "a", "partition_column": "id", "engine": Engine.ADBC},
            "the engine adbc reads with one connection (expected the engine spark)",
        ),
        (
            {"table": "a", "url": "mysql://h/d", "engine": Engine.ADBC},
            "engine adbc cannot read mysql databases",
        ),
        ({"table": "a", "url": "oracle://h/d"}, "unknown kind of database: 'oracle'"),
        ({"table": "a", "url": "postgresql://h"}, "the database URL has no database"),
        (
            {"table": "a", "url": "postgresql://h:x/d"},
            "the host or port of the database",
        ),
    ],
)
def test_a_database_source_that_cannot_be_read_is_refused(
    members: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        DatabaseSource(**{"url": SHOP, **members})
    assert error in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_the_engine_is_chosen_by_the_source() -> None:
    assert DatabaseSource(SHOP, table="a").chosen_engine is Engine.ADBC
    assert DatabaseSource(SHOP, table="a", partition_column="id").chosen_engine is Engine.SPARK
    assert DatabaseSource("mariadb://h/d", table="a").chosen_engine is Engine.SPARK
    assert DatabaseSource(SHOP, table="a", engine=Engine.SPARK).chosen_engine is Engine.SPARK


def test_sources_are_described_for_people() -> None:
    assert [source.describe() for source in SOURCES] == [
        "postgresql://shop.example/shop public.orders",
        "mariadb://shop.example:3307/shop (query)",
        "/data/a.csv and 1 more",
        "table events",
        "table events as of 7",
    ]


def test_definitions_are_created_once_replaced_listed_and_deleted(tmp_path: Path) -> None:
    store = AdapterStore(DataRoot(tmp_path))
    assert store.list() == ()
    b, a = Adapter("b", SOURCES[0], SINK), Adapter("a", SOURCES[2], SINK)
    store.create(b)
    store.create(a)
    with pytest.raises(ConflictError, match="adapter 'a' already exists"):
        store.create(Adapter("a", SOURCES[3], SINK))
    assert store.list() == (a, b)
    changed = Adapter("b", SOURCES[3], SINK, Schedule("1h", 1_000))
    store.replace(changed)
    assert store.get("b") == changed
    store.delete("b")
    assert [each.name for each in store.list()] == ["a"]
    for work in (store.get, store.delete):
        with pytest.raises(NotFoundError, match="adapter 'b' does not exist"):
            work("b")
    with pytest.raises(NotFoundError):
        store.replace(b)


def test_a_damaged_definition_is_named(tmp_path: Path) -> None:
    store = AdapterStore(DataRoot(tmp_path))
    store.create(Adapter("a", SOURCES[0], SINK))
    (tmp_path / "adapters" / "a.json").write_text('{"name": "a"}')
    with pytest.raises(DataError, match="definition of adapter 'a': \"source\" is missing"):
        store.get("a")
