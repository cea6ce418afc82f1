"""Transactions of two processes' copies of the state, on a log in DynamoDB and files in S3."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import sleeper
from tests.servers.aws_instance import AwsInstance

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
KEYS = (0, 1)


def increment(transaction: sleeper.Transaction, key: int) -> None:
    found = transaction.query(keys=[[key]]).to_arrow().column("n").to_pylist()
    count = (found[0] if found else 0) + 1
    transaction.delete(keys=[[key]])
    transaction.ingest(pa.table({"k": [key], "n": [count]}))
    transaction.export("history", (key, count), None if count % 5 == 0 else count)


def counts_of(table: sleeper.Table) -> dict[int, int]:
    return {row["k"]: row["n"] for row in table.query().to_arrow().to_pylist()}


@pytest.mark.slow
def test_transactions_of_two_writers_are_counted_and_exported(
    deployed_instance: AwsInstance,
) -> None:
    where = deployed_instance.where
    with sleeper.open_instance(where) as first, sleeper.open_instance(where) as second:
        first.create_table("counters", SCHEMA)
        history = first.create_export_queue(
            "history",
            "counters",
            on="transaction",
            keys=["k", "count:LongType"],
            values="n",
            exporter="table:history",
        )
        copy = first.create_export_queue(
            "copy", "counters", on="ingest", keys="k", values="n", exporter="table:copy"
        )
        keys = [key for key in KEYS for _ in range(8)]
        random.shuffle(keys)
        tables = [each.table("counters") for each in (first, second)]
        with ThreadPoolExecutor(2) as threads:
            done = [
                threads.submit(tables[place % 2].transact, lambda t, k=key: increment(t, k), 100)
                for place, key in enumerate(keys)
            ]
            for each in done:
                each.result()
        expected = dict(Counter(keys))
        assert counts_of(tables[0]) == counts_of(tables[1]) == expected
        assert history.drain().exports == len(keys)
        assert copy.drain().problems == []
        assert counts_of(second.table("copy")) == expected
        exported = second.table("history").query().to_arrow().to_pylist()
        assert {(row["k"], row["count"]) for row in exported} == {
            (key, count) for key in KEYS for count in range(1, 9) if count % 5
        }
        statuses = second.export_queues()
        assert [(each.name, each.lag, each.pending) for each in statuses] == [
            ("copy", 0, 0),
            ("history", 0, 0),
        ]
        history.delete()
        copy.delete()
        assert first.export_queues() == []
        first.delete_table("counters")
