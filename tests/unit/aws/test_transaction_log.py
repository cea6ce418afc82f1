"""Tests of the log that apply to DynamoDB only: big bodies, lost responses, failed trims."""

import random
import uuid
from collections.abc import Callable
from dataclasses import replace

import obstore
import pytest
from botocore.exceptions import ConnectionClosedError
from obstore.store import MemoryStore, ObjectStore

from sleeper import retries
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.errors import ConflictError, DataError, NotFoundError, UnavailableError
from sleeper.properties.deployed import TRANSACTION_LOG_TABLE
from sleeper.statestore.log import LogEntry
from sleeper.storage.bucket import Bucket, open_bucket
from tests.servers.dynoxide import DynamoTables
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
        self.log = self.of_table(TABLE)

    def of_table(self, table_id: str) -> DynamoTransactionLog:
        return DynamoTransactionLog(self.client, self.name, table_id, self.objects)

    def items(self) -> list[str]:
        found = self.client.inner.scan(TableName=self.name)["Items"]
        return sorted(item["item"]["S"] for item in found)

    def delete_item(self, item: str) -> None:
        key = {"tableId": {"S": TABLE}, "item": {"S": item}}
        self.client.inner.delete_item(TableName=self.name, Key=key)

    def object_paths(self) -> list[str]:
        return [o["path"] for page in obstore.list(self.objects) for o in page]


@pytest.fixture
def under_test(tables: DynamoTables) -> LogUnderTest:
    return LogUnderTest(tables)


def entry(first: int, last: int | None = None, body: str | None = None) -> LogEntry:
    last = last or first
    lines = "\n".join("{}" for _ in range(first, last + 1))
    return LogEntry(first, last, 1000, uuid.uuid4().hex, body or lines)


def big_entry(first: int) -> LogEntry:
    noise = random.Random(first).randbytes(400_000).hex()
    return entry(first, body=f'"{noise}"')


def test_a_big_body_is_stored_as_an_object(under_test: LogUnderTest) -> None:
    entries = [entry(1), big_entry(2), entry(3, 7)]
    for each in entries:
        under_test.log.append(each)
    assert list(under_test.log.read(0)) == entries
    (path,) = under_test.object_paths()
    assert path == f"{TABLE}/log/{2:019d}-{entries[1].write_id}.json.zst"
    assert under_test.log.used_bodies([path, "0000000a/log/x"]) == {path}


def test_big_bodies_are_written_read_and_trimmed_in_a_real_bucket(
    tables: DynamoTables, data_bucket: Bucket
) -> None:
    under_test = LogUnderTest(tables, open_bucket(data_bucket))
    entries = [big_entry(1), big_entry(2)]
    for each in entries:
        under_test.log.append(each)
    assert list(under_test.log.read(0)) == entries
    under_test.log.trim(1)
    assert len(under_test.object_paths()) == 1
    obstore.delete(under_test.objects, under_test.object_paths())
    with pytest.raises(DataError, match="does not exist"):
        under_test.log.read(1)


def test_a_big_body_that_compresses_well_stays_in_its_item(under_test: LogUnderTest) -> None:
    repeated = entry(1, body=f'"{"abc" * 1_000_000}"')
    under_test.log.append(repeated)
    assert list(under_test.log.read(0)) == [repeated]
    assert under_test.object_paths() == []


def test_a_missing_body_is_a_data_error_that_names_it(under_test: LogUnderTest) -> None:
    under_test.log.append(big_entry(1))
    (path,) = under_test.object_paths()
    obstore.delete(under_test.objects, path)
    with pytest.raises(DataError, match=path):
        under_test.log.read(0)


def test_an_append_that_dies_before_its_entry_leaves_an_unused_object(
    under_test: LogUnderTest,
) -> None:
    under_test.client.fail("transact_write_items", Killed())  # type: ignore[arg-type]
    with pytest.raises(Killed):
        under_test.log.append(big_entry(1))
    (orphan,) = under_test.object_paths()
    assert under_test.log.head() == 0
    assert under_test.log.used_bodies([orphan]) == {orphan}  # the append may go on
    winner = big_entry(1)
    under_test.log.append(winner)
    assert under_test.log.used_bodies(under_test.object_paths()) == {
        path for path in under_test.object_paths() if winner.write_id in path
    }


def test_an_append_with_a_lost_response_can_be_repeated(under_test: LogUnderTest) -> None:
    sent = entry(1, 3)
    under_test.client.fail("transact_write_items", LOST, done_before=True)
    with pytest.raises(UnavailableError):
        under_test.log.append(sent)
    assert list(under_test.log.read(0)) == [sent]
    under_test.log.append(sent)
    assert list(under_test.log.read(0)) == [sent]
    with pytest.raises(ConflictError):
        under_test.log.append(entry(1, 3))


@pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
def test_a_throttled_append_can_be_repeated(under_test: LogUnderTest, code: str) -> None:
    under_test.client.fail("transact_write_items", client_error(code))
    with pytest.raises(UnavailableError, match=code):
        under_test.log.append(entry(1))
    under_test.log.append(entry(1))
    assert under_test.log.head() == 1


def test_a_missing_dynamodb_table_is_unavailable_and_not_a_gap(tables: DynamoTables) -> None:
    log = DynamoTransactionLog(tables.client, "no-such-table", TABLE, MemoryStore())
    with pytest.raises(UnavailableError, match="ResourceNotFoundException"):
        log.head()
    with pytest.raises(UnavailableError, match="ResourceNotFoundException"):
        log.read(0)


def test_a_read_covers_several_pages_of_entries(under_test: LogUnderTest) -> None:
    noise = random.Random(1)
    entries = [entry(n, body=f'"{noise.randbytes(130_000).hex()}"') for n in range(1, 21)]
    for each in entries:
        under_test.log.append(each)
    assert under_test.object_paths() == []
    assert list(under_test.log.read(0)) == entries
    assert list(under_test.log.read(3, limit=12)) == entries[3:15]


def test_logs_of_tables_are_independent(under_test: LogUnderTest) -> None:
    other = under_test.of_table("0000000b")
    under_test.log.append(entry(1))
    other.append(big_entry(1))
    other.append(entry(2))
    other.trim(1)
    assert (under_test.log.head(), other.head()) == (1, 2)
    assert len(under_test.log.read(0)) == 1
    under_test.log.delete()
    assert other.head() == 2


TRIM_STEPS: list[Callable[[LogUnderTest], None]] = [
    lambda t: t.client.fail("update_item", Killed()),  # type: ignore[arg-type]
    lambda t: t.client.fail("update_item", Killed(), done_before=True),  # type: ignore[arg-type]
    lambda t: t.client.fail("batch_write_item", Killed()),  # type: ignore[arg-type]
    lambda t: t.client.fail("batch_write_item", Killed(), done_before=True),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("die", TRIM_STEPS, ids=["first", "trimmed", "objects", "items"])
def test_the_next_trim_finishes_one_that_died(
    under_test: LogUnderTest, die: Callable[[LogUnderTest], None]
) -> None:
    entries = [big_entry(1), entry(2, 4), big_entry(5), entry(6)]
    for each in entries:
        under_test.log.append(each)
    die(under_test)
    with pytest.raises(Killed):
        under_test.log.trim(5)
    assert under_test.log.head() == 6
    assert list(under_test.log.read(5)) == entries[3:]
    under_test.log.trim(5)
    assert under_test.items() == [f"entry#{6:019d}", "head"]
    assert under_test.object_paths() == []
    with pytest.raises(NotFoundError):
        under_test.log.read(0)
    with pytest.raises(ConflictError):
        under_test.log.append(entry(1))


def test_a_read_during_a_trim_reports_the_gap(
    under_test: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test.log.append(big_entry(1))
    under_test.log.append(entry(2))
    find = under_test.log._items_after

    def items_before_a_trim(after: int, limit: int) -> object:
        items = list(find(after, limit))
        under_test.of_table(TABLE).trim(1)
        return iter(items)

    monkeypatch.setattr(under_test.log, "_items_after", items_before_a_trim)
    with pytest.raises(NotFoundError, match="is trimmed"):
        under_test.log.read(0)


def test_deleting_a_log_deletes_its_items_and_objects(under_test: LogUnderTest) -> None:
    for each in (big_entry(1), entry(2), entry(3)):
        under_test.log.append(each)
    under_test.log.advance("f", 2)
    under_test.log.delete()
    under_test.log.delete()
    assert under_test.items() == []
    assert under_test.object_paths() == []
    with pytest.raises(ConflictError):
        under_test.log.append(entry(4))


def test_an_append_retries_throttling(under_test: LogUnderTest) -> None:
    throttled = client_error("TransactionCanceledException", "ThrottlingError", "None")
    under_test.client.fail("transact_write_items", throttled)
    under_test.client.fail("transact_write_items", throttled)
    under_test.log.append(entry(1))
    assert under_test.log.head() == 1


def test_a_read_bounds_the_bodies_in_memory(
    under_test: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.aws.transaction_log._READ_CHARACTERS", 1_000_000)
    entries = [big_entry(number) for number in range(1, 4)]
    for each in entries:
        under_test.log.append(each)
    assert under_test.log.read(0) == entries[:2]
    assert under_test.log.read(2) == entries[2:]


def test_an_entry_missing_from_a_range_query_is_read_by_its_key(
    under_test: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads by key see the head and its entry together, but a range query may lag behind."""
    entries = [entry(1), big_entry(2)]
    for each in entries:
        under_test.log.append(each)
    monkeypatch.setattr(under_test.log, "_items_after", lambda *_: iter(()))
    assert list(under_test.log.read(0)) == entries[:1]
    assert list(under_test.log.read(1)) == entries[1:]


def test_a_missing_entry_is_unavailable_after_retries(
    under_test: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(retries, "sleep", waits.append)
    under_test.log.append(entry(1))
    under_test.log.append(entry(2))
    under_test.delete_item(f"entry#{2:019d}")
    with pytest.raises(UnavailableError, match="entry 2 is missing, and the head is 2"):
        under_test.log.read(1)
    assert 4 <= sum(waits) <= 15


def test_an_append_after_an_unknown_entry_conflicts(
    under_test: LogUnderTest,
) -> None:
    first = entry(1)
    under_test.log.append(first)
    with pytest.raises(ConflictError):
        under_test.log.append(replace(entry(2), previous_write_id="f" * 32))
    second = replace(entry(2), previous_write_id=first.write_id)
    under_test.log.append(second)
    assert list(under_test.log.read(0)) == [first, second]


def test_an_append_follows_an_entry_without_a_write_id(under_test: LogUnderTest) -> None:
    under_test.log.append(entry(1))
    under_test.client.inner.update_item(  # as an older version moves the head
        TableName=under_test.name,
        Key={"tableId": {"S": TABLE}, "item": {"S": "head"}},
        UpdateExpression="SET #head = :two",
        ExpressionAttributeNames={"#head": "head"},
        ExpressionAttributeValues={":two": {"N": "2"}},
    )
    under_test.log.append(replace(entry(3), previous_write_id="f" * 32))
    assert under_test.log.head() == 3
