"""Taking up exports of the changes of a table."""

from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.export_queue.take_up import TakeUpReport
from tests.tables.opened import KEY_AND_VALUE
from tests.unit.export_queue.receiver import Receiver, create_queue, define_queue


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("rows", KEY_AND_VALUE, split_points=[50])


def follow(instance: sleeper.Instance, table: sleeper.Table, *fields: str, **more: Any) -> Receiver:
    queue = define_queue(table, *fields, **more)
    create_queue(instance._ports, "rows", queue)
    return Receiver(instance._ports, queue)


def ingest(table: sleeper.Table, **rows: str) -> int:
    """Adds rows, named as `k1="value"`. Returns the number."""
    keys = [int(key[1:]) for key in rows]
    table.ingest(pa.table({"key": keys, "value": list(rows.values())}))
    return table.version


def test_added_rows_are_exported_once_with_the_number_of_their_transaction(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ingest(table, k1="before")
    receiver = follow(instance, table, "key", "value")
    first, second = ingest(table, k2="a", k70="b"), ingest(table, k2="c")
    assert receiver.take() == TakeUpReport(3, second, True)
    expected = [(first, (2,), ("a",)), (first, (70,), ("b",)), (second, (2,), ("c",))]
    assert sorted(receiver.exports) == expected
    assert receiver.take() == TakeUpReport(0, second, True)
