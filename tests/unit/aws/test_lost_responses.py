"""Tests of lost responses: a repeated conditional write must not appear refused."""

import dataclasses
from typing import Any

import pytest

from sleeper.aws.file_requests import DynamoFileRequests
from sleeper.aws.query_tracker import DynamoQueryTracker
from sleeper.aws.tables import DynamoTableIndex, TableIndexNames
from sleeper.aws.trackers import DynamoJobTracker
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.file_requests import FileRequest
from sleeper.jobs.query_tracker import QueryPin, QueryState
from sleeper.properties.deployed import (
    INGEST_BATCHER_TABLE,
    JOB_TRACKER_TABLE,
    QUERY_TRACKER_TABLE,
    TABLE_ID_INDEX,
    TABLE_NAME_INDEX,
    TABLE_ONLINE_INDEX,
    TRANSACTION_LOG_TABLE,
)
from sleeper.statestore.log import LogEntry
from sleeper.tables import TableId, TableRef
from tests.servers.dynoxide import DynamoTables
from tests.servers.lost_responses import lose_next_response

TABLE = TableId("0000000a")
PIN = QueryPin("fingerprint", TABLE, 1, 1, "m1")


@pytest.fixture
def client(tables: DynamoTables) -> Any:
    """A client of one test."""
    return tables.another_client()


@pytest.fixture
def queries(tables: DynamoTables, client: Any) -> DynamoQueryTracker:
    return DynamoQueryTracker(client, tables.name(QUERY_TRACKER_TABLE), 30)


def test_a_lost_response_still_reports_the_end_of_the_query(
    queries: DynamoQueryTracker, client: Any
) -> None:
    queries.begin("q", PIN)
    queries.plan("q", ["s"], "m1")
    queries.start("q", "s", "m1")
    lose_next_response(client, "UpdateItem")
    results = queries.finish("q", "s", 3, run="m1")
    assert results is not None
    assert (results.state, results.row_count) == (QueryState.COMPLETED, 3)
    assert queries.finish("q", "s", 3, run="m1") is None


def test_a_repeated_count_of_rows_finishes_a_subquery_once(
    queries: DynamoQueryTracker, client: Any
) -> None:
    queries.begin("q", PIN)
    queries.plan("q", ["s"], "m1")
    lose_next_response(client, "TransactWriteItems")
    results = queries.finish("q", "s", 3, rows_max=4, run="m1")
    assert results is not None
    assert (results.state, results.row_count) == (QueryState.COMPLETED, 3)


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_query_that_fails_is_ended_once(
    queries: DynamoQueryTracker, client: Any, is_begun: bool
) -> None:
    if is_begun:
        queries.begin("q", PIN)
    lose_next_response(client, "UpdateItem")
    results = queries.fail("q", PIN.fingerprint, "reason", "m1")
    assert results is not None
    assert (results.state, results.error) == (QueryState.FAILED, "reason")
    assert queries.fail("q", PIN.fingerprint, "reason", "m1") is None
    lose_next_response(client, "UpdateItem")
    other = queries.fail("q", "another", "other reason", "m2")
    assert other is not None
    assert other.error == "other reason"


def test_a_repeated_begin_is_accepted(queries: DynamoQueryTracker, client: Any) -> None:
    lose_next_response(client, "PutItem")
    assert queries.begin("q", PIN) == PIN
    lose_next_response(client, "UpdateItem")
    assert queries.start("q", "s", "m1")


def test_a_repeated_table_creation_is_no_conflict(tables: DynamoTables, client: Any) -> None:
    names = (TABLE_NAME_INDEX, TABLE_ID_INDEX, TABLE_ONLINE_INDEX)
    index = DynamoTableIndex(client, TableIndexNames(*(tables.name(name) for name in names)))
    table = TableRef(TABLE, "t")
    lose_next_response(client, "TransactWriteItems")
    index.create(table)
    renamed = dataclasses.replace(table, name="u")
    lose_next_response(client, "TransactWriteItems")
    index.replace(table, renamed)
    assert index.list() == (renamed,)


def test_a_repeated_assignment_is_no_conflict(tables: DynamoTables, client: Any) -> None:
    requests = DynamoFileRequests(client, tables.name(INGEST_BATCHER_TABLE))
    lose_next_response(client, "PutItem")
    requests.add([FileRequest(TABLE, "r", "bucket/file", 1, 1)])
    lose_next_response(client, "TransactWriteItems")
    requests.assign("job", requests.waiting(TABLE))
    lose_next_response(client, "TransactWriteItems")
    requests.mark_sent(requests.waiting(TABLE))
    assert requests.waiting(TABLE) == ()


def test_a_repeated_entry_or_event_is_stored_once(tables: DynamoTables, client: Any) -> None:
    log = DynamoTransactionLog(client, tables.name(TRANSACTION_LOG_TABLE), TABLE, None)  # type: ignore[arg-type]
    entry = LogEntry(1, 1, 1, "write", "")
    lose_next_response(client, "TransactWriteItems")
    log.append(entry)
    assert log.read(0) == [entry]
    jobs = DynamoJobTracker(client, tables.name(JOB_TRACKER_TABLE), 30)
    lose_next_response(client, "PutItem")
    jobs.record(JobEvent(TABLE, "j", JobKind.INGEST, JobStep.CREATED, 1))
    assert len(jobs.recent()) == 1
