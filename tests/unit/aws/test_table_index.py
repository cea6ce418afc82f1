"""Tests of the items in the three DynamoDB tables of the index."""

from collections.abc import Callable
from typing import Any

import pytest

from sleeper.aws.tables import DynamoTableIndex, TableIndexNames
from sleeper.errors import UnavailableError
from sleeper.properties.deployed import TABLE_ID_INDEX, TABLE_NAME_INDEX, TABLE_ONLINE_INDEX
from sleeper.tables import (
    TableId,
    TableRef,
    mark_table_deleting,
    rename_table,
    set_table_online,
)
from tests.servers.dynoxide import DynamoTables
from tests.unit.aws.conftest import FaultyClient, paginate_by
from tests.unit.aws.test_errors import client_error

A = TableRef(TableId("0000000a"), "apples")
B = TableRef(TableId("0000000b"), "bananas", online=False)
THREE = (TABLE_NAME_INDEX, TABLE_ID_INDEX, TABLE_ONLINE_INDEX)


def open_index(tables: DynamoTables, client: Any = None) -> DynamoTableIndex:
    names = TableIndexNames(*(tables.name(entry) for entry in THREE))
    return DynamoTableIndex(client or tables.client, names)


def items(tables: DynamoTables) -> list[list[dict[str, Any]]]:
    """Returns the items by name, by id and by online, each ordered by id."""
    scans = [tables.client.scan(TableName=tables.name(entry)) for entry in THREE]
    return [sorted(scan["Items"], key=lambda i: i["TableId"]["S"]) for scan in scans]


def item(table_id: str, name: str, online: str, **more: str) -> dict[str, Any]:
    values = {"TableId": table_id, "TableName": name, "Online": online, **more}
    return {key: {"S": value} for key, value in values.items()}


def test_a_table_is_the_same_item_in_three_dynamodb_tables(tables: DynamoTables) -> None:
    index = open_index(tables)
    index.create(A)
    index.create(B)
    expected = [item("0000000a", "apples", "true"), item("0000000b", "bananas", "false")]
    assert items(tables) == [expected] * 3


def test_a_change_deletes_the_old_items(tables: DynamoTables) -> None:
    index = open_index(tables)
    index.create(A)
    rename_table(index, "apples", "pears")
    set_table_online(index, "pears", online=False)
    assert items(tables) == [[item("0000000a", "pears", "false")]] * 3


def test_a_table_being_deleted_is_only_in_the_table_by_id(tables: DynamoTables) -> None:
    index = open_index(tables)
    index.create(A)
    mark_table_deleting(index, "apples")
    assert items(tables) == [[], [item("0000000a", "apples", "true", State="deleting")], []]
    index.remove(A.id)
    assert items(tables) == [[], [], []]


def test_an_item_of_another_client_is_read(tables: DynamoTables) -> None:
    for entry in THREE:
        table = tables.name(entry)
        tables.client.put_item(TableName=table, Item=item("0000000a", "apples", "true"))
    index = open_index(tables)
    assert index.find("apples") == index.get(A.id) == A
    rename_table(index, "apples", "pears")
    assert [t.name for t in index.list()] == ["pears"]


def test_a_listing_reads_several_pages(tables: DynamoTables) -> None:
    index = open_index(tables)
    refs = [TableRef(TableId(f"{n:08x}"), f"t{n:04}", n % 3 > 0) for n in range(60)]
    for ref in refs:
        index.create(ref)
    assert index.list() == tuple(refs)


def test_a_change_waits_for_a_transaction_in_progress(tables: DynamoTables) -> None:
    client = FaultyClient(tables.client)
    index = open_index(tables, client)
    busy = client_error("TransactionCanceledException", "None", "TransactionConflict", "None")
    client.fail("transact_write_items", busy)
    client.fail("transact_write_items", busy)
    index.create(A)
    assert index.list() == (A,)
    assert client.calls.count("transact_write_items") == 3


def test_throttling_is_unavailable_and_changes_nothing(tables: DynamoTables) -> None:
    client = FaultyClient(tables.client)
    index = open_index(tables, client)
    client.fail("transact_write_items", client_error("ThrottlingException"))
    with pytest.raises(UnavailableError, match="ThrottlingException"):
        index.create(A)
    assert items(tables) == [[], [], []]


def test_a_table_that_goes_online_or_offline_during_a_listing_is_listed_once(
    tables: DynamoTables,
) -> None:
    other_index = open_index(tables)
    other_index.create(A)
    other_index.create(B)

    calls: list[str] = []

    class ConcurrentChange:
        """A client whose first response is followed by changes of another client."""

        def __getattr__(self, operation: str) -> Callable[..., Any]:
            def call(**arguments: Any) -> Any:
                calls.append(operation)
                answer = getattr(tables.client, operation)(**arguments)
                if len(calls) == 1:
                    set_table_online(other_index, A.name, False)
                    set_table_online(other_index, B.name, True)
                return answer

            return call

        def get_paginator(self, operation: str) -> Any:
            return paginate_by(self, tables.client, operation)

    listing = open_index(tables, ConcurrentChange()).list()
    assert [t.id for t in listing] == [A.id, B.id]
