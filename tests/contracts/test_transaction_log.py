"""Contract of transaction logs."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.errors import ConflictError, NotFoundError
from sleeper.local.state_store import SqliteTransactionLog
from sleeper.properties.deployed import TRANSACTION_LOG_TABLE
from sleeper.statestore.database import Database
from sleeper.statestore.log import LogEntry, TransactionLog
from tests.contracts.conftest import dynamo_tables


@pytest.fixture(params=["sqlite", "dynoxide", "moto", "simulated"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TransactionLog]:
    if request.param == "sqlite":
        yield SqliteTransactionLog(Database(tmp_path / "log.db"))
        return
    with dynamo_tables(request) as tables:
        name = tables.name(TRANSACTION_LOG_TABLE)
        yield DynamoTransactionLog(tables.client, name, "0000000a", MemoryStore())


def entry(first: int, last: int, writer: str = "w") -> LogEntry:
    body = "\n".join("{}" for _ in range(first, last + 1))
    return LogEntry(first, last, 1000 + first, f"{writer}-{uuid.uuid4().hex[:16]}", body)


def test_an_empty_log_has_head_0_and_no_entries(log):
    assert log.head() == 0
    assert list(log.read(0)) == []


def test_entries_are_read_back_in_order_after_a_number(log):
    entries = [entry(1, 1), entry(2, 5), entry(6, 6)]
    for e in entries:
        log.append(e)
    assert log.head() == 6
    assert list(log.read(0)) == entries
    assert list(log.read(1, limit=1)) == entries[1:2]
    assert list(log.read(6)) == []


@pytest.mark.parametrize("first", [1, 3])
def test_an_append_not_at_the_head_conflicts_and_changes_nothing(log, first):
    remaining = entry(1, 1)
    log.append(remaining)
    with pytest.raises(ConflictError):
        log.append(entry(first, first, "other"))
    assert log.head() == 1
    assert list(log.read(0)) == [remaining]


def test_a_started_append_is_stored_when_it_has_been_awaited(log: TransactionLog) -> None:
    first = entry(1, 2)
    log.start_append(first)()
    assert list(log.read(0)) == [first]
    with pytest.raises(ConflictError):
        log.start_append(entry(2, 2))()
    assert list(log.read(0)) == [first]


def test_a_trimmed_number_stays_taken(log):
    for number in (1, 2, 3):
        log.append(entry(number, number))
    log.trim(3)
    assert log.head() == 3
    for first in (1, 2, 3):
        with pytest.raises(ConflictError):
            log.append(entry(first, first, "asleep"))
    log.append(entry(4, 4))


def test_a_trim_keeps_entries_beyond_it_and_reads_report_the_gap(log):
    for e in (entry(1, 2), entry(3, 5), entry(6, 6)):
        log.append(e)
    log.trim(4)
    with pytest.raises(NotFoundError):
        log.read(0)
    assert [e.first_number for e in log.read(2)] == [3, 6]
    log.trim(1)
    assert [e.first_number for e in log.read(2)] == [3, 6]


def test_a_cursor_only_moves_forward(log):
    assert log.cursor("f") == 0
    log.advance("f", 5)
    log.advance("f", 3)
    assert log.cursor("f") == 5
    assert log.cursor("g") == 0


def test_reading_beyond_the_head_is_refused(log: TransactionLog) -> None:
    """Such a reader has a state that the log does not contain."""
    log.append(entry(1, 1))
    assert log.read(1) == []
    with pytest.raises(NotFoundError, match="beyond the log"):
        log.read(2)


def test_a_log_that_begins_after_a_number_continues_it(log: TransactionLog) -> None:
    log.begin(7)
    log.begin(7)
    assert log.head() == 7
    assert log.read(7) == []
    with pytest.raises(NotFoundError):
        log.read(0)
    with pytest.raises(ConflictError, match="is at 7"):
        log.begin(8)
    for first in (1, 7, 9):
        with pytest.raises(ConflictError):
            log.append(entry(first, first))
    later = entry(8, 9)
    log.append(later)
    assert list(log.read(7)) == [later]
    with pytest.raises(ConflictError, match="is at 9"):
        log.begin(7)
