"""Tests of orphaned log bodies: collection finds those without an entry."""

import random
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.clock import system_clock
from sleeper.files import StoredObject
from sleeper.garbage_collection.orphans import collect_orphans
from sleeper.partitions.partition import tree_from_split_points
from sleeper.properties.deployed import TRANSACTION_LOG_TABLE
from sleeper.properties.table import NAME, SCHEMA, TABLE_ID
from sleeper.properties.values import instance_properties, table_properties
from sleeper.schema.model import schema_to_json
from sleeper.statestore.database import Database
from sleeper.statestore.log import LogEntry
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.tables import TableId
from tests.clock import DAY_MS
from tests.servers.dynoxide import DynamoTables
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import SCHEMA as TEST_SCHEMA
from tests.unit.aws.conftest import FaultyClient

TABLE = TableId("0000000a")


class Killed(BaseException):
    """Simulates the end of the process."""


def test_collection_finds_the_orphaned_body_of_a_killed_append(
    tables: DynamoTables, tmp_path: Path
) -> None:
    client, objects = FaultyClient(tables.client), MemoryStore()
    log = DynamoTransactionLog(client, tables.name(TRANSACTION_LOG_TABLE), TABLE, objects)
    now_ms = system_clock()
    store = StateStore(
        Database(tmp_path / "state.db", durable=False), log, MemoryHolds(), lambda: now_ms
    )
    tree = tuple(tree_from_split_points(TEST_SCHEMA, ()))
    store.commit_or_raise(InitialiseTable(schema_to_json(TEST_SCHEMA), tree))
    store.commit_or_raise(big_transaction("kept"))
    (remaining,) = paths(objects)
    client.fail("transact_write_items", Killed())  # type: ignore[arg-type]
    with pytest.raises(Killed):
        store.commit_or_raise(big_transaction("lost"))
    (orphan,) = paths(objects) - {remaining}
    unsent = f"{TABLE}/commits/{'0' * 32}.json"
    obstore.put(objects, unsent, b"[]")

    def listing(_: TableId) -> Iterator[StoredObject]:
        for path in sorted(paths(objects)):
            yield StoredObject(path, 1, system_clock())

    def collect(days: int) -> list[str]:
        nonlocal now_ms
        now_ms = system_clock() + days * DAY_MS
        previous = paths(objects)
        collect_orphans(
            TABLE,
            store,
            properties(),
            listing,
            lambda found: obstore.delete(objects, found),
            lambda: now_ms,
        )
        return sorted(previous - paths(objects))

    assert collect(days=13) == []
    assert collect(days=15) == sorted([orphan, unsent])
    assert paths(objects) == {remaining}
    with StateStore(
        Database(tmp_path / "copy.db", durable=False), log, MemoryHolds()
    ).reading() as state:
        assert state.jobs.applied("kept", AddFiles.kind) is not None


def test_collection_keeps_the_body_of_an_append_in_progress(tables: DynamoTables) -> None:
    """A collector with a fast clock sees an old object, but the following entry needs it."""
    log = DynamoTransactionLog(
        tables.client, tables.name(TRANSACTION_LOG_TABLE), TABLE, MemoryStore()
    )
    log.append(LogEntry(1, 1, 0, "0" * 32, "{}"))
    lost, under_way = (
        f"{TABLE}/log/{number:019d}-{str(number) * 32}.json.zst" for number in (1, 2)
    )
    assert log.used_bodies([lost, under_way]) == {under_way}


def big_transaction(job_id: str) -> AddFiles:
    """An incompressible transaction without files."""
    return AddFiles(job_id, system_clock(), (), random.Random(job_id).randbytes(400_000).hex())


def paths(objects: MemoryStore) -> set[str]:
    return {result["path"] for page in obstore.list(objects) for result in page}


def properties() -> object:
    values = {NAME.name: "t", TABLE_ID.name: TABLE, SCHEMA.name: schema_to_json(TEST_SCHEMA)}
    return table_properties(values, instance_properties({"sleeper.id": "test"}))
