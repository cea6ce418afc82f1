"""Tests of the log that apply to DynamoDB only: big bodies, lost responses, failed trims."""

import random
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest
from botocore.exceptions import ConnectionClosedError
from obstore.store import MemoryStore, ObjectStore

from sleeper import retries
from sleeper.aws.dynamo import DynamoItems
from sleeper.aws.shared_appends import SharedAppends
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.errors import ConflictError, DataError, NotFoundError, UnavailableError
from sleeper.properties.deployed import TRANSACTION_LOG_TABLE
from sleeper.statestore.database import Database
from sleeper.statestore.joint_commit import commit_jointly
from sleeper.statestore.log import LogEntry
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.transaction import Outcome, Status
from sleeper.storage.bucket import Bucket, open_bucket
from tests.clock import FakeClock
from tests.servers.dynoxide import DynamoTables
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import StateTable
from tests.unit.aws.conftest import FaultyClient
from tests.unit.aws.test_errors import client_error

TABLE = "0000000a"
LOST = ConnectionClosedError(endpoint_url="http://dynamodb")


class Killed(BaseException):
    """Simulates the end of the process."""


class LogUnderTest:
    def __init__(self, tables: DynamoTables, objects: ObjectStore | None = None) -> None:
        self.client = FaultyClient(tables.client)
        self.objects = objects or MemoryStore()
        self.name = tables.name(TRANSACTION_LOG_TABLE)
        self.log = self.open_log(TABLE)

    def open_log(self, table_id: str) -> DynamoTransactionLog:
        return DynamoTransactionLog(self.client, self.name, table_id, self.objects)

    def items(self) -> list[str]:
        result = self.client.inner.scan(TableName=self.name)["Items"]
        return sorted(item["item"]["S"] for item in result)

    def delete_item(self, item: str) -> None:
        key = {"tableId": {"S": TABLE}, "item": {"S": item}}
        self.client.inner.delete_item(TableName=self.name, Key=key)

    def object_paths(self) -> list[str]:
        return [o["path"] for page in obstore.list(self.objects) for o in page]


@pytest.fixture
def tested_log(tables: DynamoTables) -> LogUnderTest:
    return LogUnderTest(tables)


def entry(first: int, last: int | None = None, body: str | None = None) -> LogEntry:
    last = last or first
    lines = "\n".join("{}" for _ in range(first, last + 1))
    return LogEntry(first, last, 1000, uuid.uuid4().hex, body or lines)


def big_entry(first: int) -> LogEntry:
    noise = random.Random(first).randbytes(400_000).hex()
    return entry(first, body=f'"{noise}"')


def test_a_big_body_is_stored_as_an_object(tested_log: LogUnderTest) -> None:
    entries = [entry(1), big_entry(2), entry(3, 7)]
    for item in entries:
        tested_log.log.append(item)
    assert list(tested_log.log.read(0)) == entries
    (path,) = tested_log.object_paths()
    assert path == f"{TABLE}/log/{2:019d}-{entries[1].write_id}.json.zst"
    assert tested_log.log.used_bodies([path, "0000000a/log/x"]) == {path}


def test_big_bodies_are_written_read_and_trimmed_in_a_real_bucket(
    tables: DynamoTables, data_bucket: Bucket
) -> None:
    tested_log = LogUnderTest(tables, open_bucket(data_bucket))
    entries = [big_entry(1), big_entry(2)]
    for item in entries:
        tested_log.log.append(item)
    assert list(tested_log.log.read(0)) == entries
    tested_log.log.trim(1)
    assert len(tested_log.object_paths()) == 1
    obstore.delete(tested_log.objects, tested_log.object_paths())
    with pytest.raises(DataError, match="does not exist"):
        tested_log.log.read(1)


def test_a_big_body_that_compresses_well_stays_in_its_item(tested_log: LogUnderTest) -> None:
    repeated = entry(1, body=f'"{"abc" * 1_000_000}"')
    tested_log.log.append(repeated)
    assert list(tested_log.log.read(0)) == [repeated]
    assert tested_log.object_paths() == []


def test_a_missing_body_is_a_data_error_that_names_it(tested_log: LogUnderTest) -> None:
    tested_log.log.append(big_entry(1))
    (path,) = tested_log.object_paths()
    obstore.delete(tested_log.objects, path)
    with pytest.raises(DataError, match=path):
        tested_log.log.read(0)


def test_an_append_that_dies_before_its_entry_leaves_an_unused_object(
    tested_log: LogUnderTest,
) -> None:
    tested_log.client.fail("transact_write_items", Killed())  # type: ignore[arg-type]
    with pytest.raises(Killed):
        tested_log.log.append(big_entry(1))
    (orphan,) = tested_log.object_paths()
    assert tested_log.log.head() == 0
    assert tested_log.log.used_bodies([orphan]) == {orphan}  # the append may go on
    winner = big_entry(1)
    tested_log.log.append(winner)
    assert tested_log.log.used_bodies(tested_log.object_paths()) == {
        path for path in tested_log.object_paths() if winner.write_id in path
    }


def test_an_append_with_a_lost_response_can_be_repeated(tested_log: LogUnderTest) -> None:
    message = entry(1, 3)
    tested_log.client.fail("transact_write_items", LOST, done_before=True)
    with pytest.raises(UnavailableError):
        tested_log.log.append(message)
    assert list(tested_log.log.read(0)) == [message]
    tested_log.log.append(message)
    assert list(tested_log.log.read(0)) == [message]
    with pytest.raises(ConflictError):
        tested_log.log.append(entry(1, 3))


@pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
def test_a_throttled_append_can_be_repeated(tested_log: LogUnderTest, code: str) -> None:
    tested_log.client.fail("transact_write_items", client_error(code))
    with pytest.raises(UnavailableError, match=code):
        tested_log.log.append(entry(1))
    tested_log.log.append(entry(1))
    assert tested_log.log.head() == 1


def test_logs_share_a_transaction_without_sharing_conflicts(tested_log: LogUnderTest) -> None:
    client = tested_log.client
    appends = SharedAppends(DynamoItems(client, tested_log.name, "logs"))
    names = [f"0000000{number}" for number in range(4)]
    logs = [
        DynamoTransactionLog(client, tested_log.name, name, tested_log.objects, appends)
        for name in names
    ]
    logs[2].append(entry(1))
    # Held, so that all four wait and go together.
    with ThreadPoolExecutor(len(logs)) as threads:
        with appends._sending:
            results = [threads.submit(log.append, entry(1)) for log in logs]
            while len(appends._waiting) < len(logs):
                time.sleep(0.001)
        errors = [result.exception(30) for result in results]
    assert [type(error) for error in errors] == [*[type(None)] * 2, ConflictError, type(None)]
    assert [log.head() for log in logs] == [1] * 4
    assert [len(log.read(0)) for log in logs] == [1] * 4


def test_tables_that_commit_jointly_share_a_request(
    tested_log: LogUnderTest, tmp_path: Path
) -> None:
    client, clock = tested_log.client, FakeClock()
    appends = SharedAppends(DynamoItems(client, tested_log.name, "logs"))

    def open_store(table_id: str, copy: str) -> StateStore:
        log = DynamoTransactionLog(client, tested_log.name, table_id, tested_log.objects, appends)
        database = Database(tmp_path / f"{table_id}-{copy}.db", durable=False)
        return StateStore(database, log, MemoryHolds(), clock)

    tables, ids = [], ["00000001", "00000002", "00000003"]
    for table_id in ids:
        table = StateTable(tmp_path, "remote", clock)
        table.store = open_store(table_id, "own")
        tables.append(table.initialise())
        # The second commit finds that no other process appends.
        table.ingest("first")

    def commit(jobs: list[AddFiles]) -> list[Any]:
        client.calls.clear()
        commits = [(table.store, [job]) for table, job in zip(tables, jobs, strict=True)]
        return commit_jointly(commits)

    def jobs(path: str) -> list[AddFiles]:
        return [table.ingest_job(path) for table in tables]

    assert commit(jobs("second")) == [[Outcome(Status.APPLIED, 3)]] * 3
    assert client.calls == ["transact_write_items"]
    open_store(ids[1], "other").commit_or_raise(tables[1].ingest_job("other"))
    third = jobs("third")
    results = commit(third)
    assert results[1] is None
    tables[1].store.commit(third[1])
    assert [table.number() for table in tables] == [4, 5, 4]
    tables[1].ingest("fourth")
    client.fail("transact_write_items", LOST, done_before=True)
    last = jobs("last")
    assert [type(result) for result in commit(last)] == [UnavailableError] * 3
    outcomes = [table.commit(job) for table, job in zip(tables, last, strict=True)]
    assert [(o.status, o.number) for o in outcomes] == [
        (Status.ALREADY_DONE, number) for number in (5, 7, 5)
    ]


def test_a_missing_dynamodb_table_is_unavailable_and_not_a_gap(tables: DynamoTables) -> None:
    log = DynamoTransactionLog(tables.client, "no-such-table", TABLE, MemoryStore())
    with pytest.raises(UnavailableError, match="ResourceNotFoundException"):
        log.head()
    with pytest.raises(UnavailableError, match="ResourceNotFoundException"):
        log.read(0)


def test_a_read_covers_several_pages_of_entries(tested_log: LogUnderTest) -> None:
    noise = random.Random(1)
    entries = [entry(n, body=f'"{noise.randbytes(130_000).hex()}"') for n in range(1, 21)]
    for item in entries:
        tested_log.log.append(item)
    assert tested_log.object_paths() == []
    assert list(tested_log.log.read(0)) == entries
    assert list(tested_log.log.read(3, limit=12)) == entries[3:15]


def test_logs_of_tables_are_independent(tested_log: LogUnderTest) -> None:
    other = tested_log.open_log("0000000b")
    tested_log.log.append(entry(1))
    other.append(big_entry(1))
    other.append(entry(2))
    other.trim(1)
    assert (tested_log.log.head(), other.head()) == (1, 2)
    assert len(tested_log.log.read(0)) == 1
    tested_log.log.delete()
    assert other.head() == 2


TRIM_STEPS: list[Callable[[LogUnderTest], None]] = [
    lambda t: t.client.fail("update_item", Killed()),  # type: ignore[arg-type]
    lambda t: t.client.fail("update_item", Killed(), done_before=True),  # type: ignore[arg-type]
    lambda t: t.client.fail("batch_write_item", Killed()),  # type: ignore[arg-type]
    lambda t: t.client.fail("batch_write_item", Killed(), done_before=True),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("die", TRIM_STEPS, ids=["first", "trimmed", "objects", "items"])
def test_the_next_trim_finishes_one_that_died(
    tested_log: LogUnderTest, die: Callable[[LogUnderTest], None]
) -> None:
    entries = [big_entry(1), entry(2, 4), big_entry(5), entry(6)]
    for item in entries:
        tested_log.log.append(item)
    die(tested_log)
    with pytest.raises(Killed):
        tested_log.log.trim(5)
    assert tested_log.log.head() == 6
    assert list(tested_log.log.read(5)) == entries[3:]
    tested_log.log.trim(5)
    assert tested_log.items() == [f"entry#{6:019d}", "head"]
    assert tested_log.object_paths() == []
    with pytest.raises(NotFoundError):
        tested_log.log.read(0)
    with pytest.raises(ConflictError):
        tested_log.log.append(entry(1))


def test_a_read_during_a_trim_reports_the_gap(
    tested_log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested_log.log.append(big_entry(1))
    tested_log.log.append(entry(2))
    find = tested_log.log._items_after

    def items_before_a_trim(start: int, limit: int) -> object:
        items = list(find(start, limit))
        tested_log.open_log(TABLE).trim(1)
        return iter(items)

    monkeypatch.setattr(tested_log.log, "_items_after", items_before_a_trim)
    with pytest.raises(NotFoundError, match="is trimmed"):
        tested_log.log.read(0)


def test_deleting_a_log_deletes_its_items_and_objects(tested_log: LogUnderTest) -> None:
    for item in (big_entry(1), entry(2), entry(3)):
        tested_log.log.append(item)
    tested_log.log.advance("f", 2)
    tested_log.log.delete()
    tested_log.log.delete()
    assert tested_log.items() == []
    assert tested_log.object_paths() == []
    with pytest.raises(ConflictError):
        tested_log.log.append(entry(4))


def test_an_append_retries_throttling(tested_log: LogUnderTest) -> None:
    throttled = client_error("TransactionCanceledException", "ThrottlingError", "None")
    tested_log.client.fail("transact_write_items", throttled)
    tested_log.client.fail("transact_write_items", throttled)
    tested_log.log.append(entry(1))
    assert tested_log.log.head() == 1


def test_a_read_bounds_the_bodies_in_memory(
    tested_log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.aws.transaction_log._READ_CHARACTERS", 1_000_000)
    entries = [big_entry(number) for number in range(1, 4)]
    for item in entries:
        tested_log.log.append(item)
    assert tested_log.log.read(0) == entries[:2]
    assert tested_log.log.read(2) == entries[2:]


def test_an_entry_missing_from_a_range_query_is_read_by_its_key(
    tested_log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads by key see the head and its entry together, but a range query may lag behind."""
    entries = [entry(1), big_entry(2)]
    for item in entries:
        tested_log.log.append(item)
    monkeypatch.setattr(tested_log.log, "_items_after", lambda *_: iter(()))
    assert list(tested_log.log.read(0)) == entries[:1]
    assert list(tested_log.log.read(1)) == entries[1:]


def test_a_missing_entry_is_unavailable_after_retries(
    tested_log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(retries, "sleep", waits.append)
    tested_log.log.append(entry(1))
    tested_log.log.append(entry(2))
    tested_log.delete_item(f"entry#{2:019d}")
    with pytest.raises(UnavailableError, match="entry 2 is missing, and the head is 2"):
        tested_log.log.read(1)
    assert 4 <= sum(waits) <= 15


def test_an_append_after_an_unknown_entry_conflicts(
    tested_log: LogUnderTest,
) -> None:
    first = entry(1)
    tested_log.log.append(first)
    with pytest.raises(ConflictError):
        tested_log.log.append(replace(entry(2), previous_write_id="f" * 32))
    second = replace(entry(2), previous_write_id=first.write_id)
    tested_log.log.append(second)
    assert list(tested_log.log.read(0)) == [first, second]


def test_an_append_follows_an_entry_without_a_write_id(tested_log: LogUnderTest) -> None:
    tested_log.log.append(entry(1))
    tested_log.client.inner.update_item(  # as an older version moves the head
        TableName=tested_log.name,
        Key={"tableId": {"S": TABLE}, "item": {"S": "head"}},
        UpdateExpression="SET #head = :two",
        ExpressionAttributeNames={"#head": "head"},
        ExpressionAttributeValues={":two": {"N": "2"}},
    )
    tested_log.log.append(replace(entry(3), previous_write_id="f" * 32))
    assert tested_log.log.head() == 3
