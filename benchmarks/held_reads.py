"""Requests to DynamoDB of reads that keep their versions: lookups, statements, scans, streams."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from botocore.client import BaseClient

from benchmarks.dynamo import dynamo_instance
from benchmarks.result import Aim, Result, check, figure
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.api.table import Table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.query.sql.service import open_sql

_QUERIES = 1_000
_LEAVES = 64
_ROWS = 640
_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'
_WRITES = ("PutItem", "UpdateItem", "DeleteItem")


def measure(settings: Settings) -> Result:
    queries = settings.rows or _QUERIES
    with dynamo_instance(settings.folder / "held-reads") as instance:
        create_table(instance, "t", _SCHEMA, {}, range(10, _ROWS, 10))
        ingest_rows(instance, "t", [pa.record_batch({"k": list(range(_ROWS))})])
        figures = []
        for name, times, read in _reads(instance):
            repeats = times or queries
            before = _number(instance)
            with counted() as counts:
                for _ in range(repeats):
                    check(read() == _ROWS, f"{name}: rows are missing")
            what = f"{repeats:,} × {name}"
            most = Aim(100, is_most=True) if times is None else None
            figures += [
                figure(f"{what}, write units", [counts["units"]], "units", most),
                figure(f"{what}, requests", [counts["requests"]], "requests"),
                figure(f"{what}, transactions", [_number(instance) - before], "transactions"),
            ]
    work = (
        f"Reads of a table of {_LEAVES} leaves by one process. Log and holds are on a DynamoDB"
        " server (dynoxide) of the same machine. A write unit is a KiB of an item, twice in a"
        " transaction."
    )
    return Result("held-reads", work, tuple(figures))


def _reads(instance: Instance) -> Iterator[tuple[str, int | None, Callable[[], int]]]:
    """Yields the name of a kind of read, how often it is done, and the read."""

    def query() -> int:
        with open_query(instance, "t", Query()) as result:
            return sum(batch.num_rows for batch in result)

    def statement() -> int:
        with open_sql(instance, "SELECT k FROM t") as result:
            return sum(batch.num_rows for batch in result)

    def stream() -> int:
        with Table(instance, "t").reader() as reader:
            return sum(batch.num_rows for batch in reader.query())

    yield f"query of {_LEAVES} leaves", None, query
    yield "SQL statement", 1, statement
    yield f"scan of {_LEAVES} leaves", 1, query
    yield "stream of a reader", 1, stream


def _number(instance: Instance) -> int:
    with instance.table("t").state.reading() as state:
        return int(state.number)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the requests to DynamoDB in the block, and the units of those that write."""
    counts: Counter[str] = Counter()
    call: Any = BaseClient._make_api_call

    def count(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        counts["requests"] += 1
        # Items of holds and of entries without files are smaller than a KiB.
        if operation in _WRITES:
            counts["units"] += 1
        elif operation == "TransactWriteItems":
            counts["units"] += 2 * len(parameters["TransactItems"])
        elif operation == "BatchWriteItem":
            counts["units"] += sum(len(each) for each in parameters["RequestItems"].values())
        return call(client, operation, parameters)

    with mock.patch.object(BaseClient, "_make_api_call", count):
        yield counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for each in measure(Settings(Path(folder), None, 1)).figures:
            print(f"{each.what}: {each.value:,.0f}")
