"""Contract of the ingest batcher's file requests."""

import dataclasses

import pytest

from sleeper.errors import ConflictError
from sleeper.jobs.file_requests import FILES_PER_JOB_MAX, FileRequest, FileRequests
from sleeper.tables import TableId
from tests.contracts.conftest import Store

TABLE = TableId("0000000a")
OTHER = TableId("0000000b")


def request(number: int, table_id: TableId = TABLE, received_ms: int = 1_000) -> FileRequest:
    return FileRequest(table_id, f"m-{number:03d}", f"bucket/{number}", number, received_ms)


def test_waiting_requests_are_listed_oldest_first(file_requests: Store[FileRequests]) -> None:
    late, early = request(1, received_ms=2_000), request(2)
    file_requests.port.add([late, early, request(3, OTHER)])
    assert file_requests.again().waiting(TABLE) == (early, late)
    assert file_requests.again().waiting(OTHER) == (request(3, OTHER),)
    assert file_requests.list_stored() == [
        (TABLE, "m-001", "bucket/1"),
        (TABLE, "m-002", "bucket/2"),
        (OTHER, "m-003", "bucket/3"),
    ]


def test_a_repeated_request_changes_nothing(file_requests: Store[FileRequests]) -> None:
    port = file_requests.port
    port.add([request(1)])
    again = dataclasses.replace(request(1), path="bucket/other", received_ms=9)
    port.add([again, request(2)])
    assert port.waiting(TABLE) == (request(1), request(2))


def test_the_maximum_of_a_job_is_assigned_at_once(
    file_requests: Store[FileRequests],
) -> None:
    port = file_requests.port
    requests = [request(n) for n in range(FILES_PER_JOB_MAX)]
    port.add(requests)
    port.assign("job", requests)
    assigned = port.waiting(TABLE)
    assert {(r.job_id, r.job_files) for r in assigned} == {("job", FILES_PER_JOB_MAX)}
    port.mark_sent(assigned)
    assert port.waiting(TABLE) == ()


def test_assignment_is_all_or_nothing_and_once(file_requests: Store[FileRequests]) -> None:
    port = file_requests.port
    port.add([request(1), request(2)])
    port.assign("one", [request(2)])
    with pytest.raises(ConflictError):
        port.assign("two", [request(1), request(2)])
    assert [r.job_id for r in port.waiting(TABLE)] == [None, "one"]
    with pytest.raises(ConflictError):
        port.assign("two", [request(9)])
    assert [r.path for r in port.waiting(TABLE)] == ["bucket/1", "bucket/2"]


def test_sent_requests_stay_sent(file_requests: Store[FileRequests]) -> None:
    port = file_requests.port
    port.add([request(1)])
    port.assign("one", [request(1)])
    message = port.waiting(TABLE)
    port.mark_sent(message)
    port.mark_sent(message)
    port.add([request(1)])
    assert port.waiting(TABLE) == ()
    with pytest.raises(ConflictError):
        port.assign("two", [request(1)])


def test_tables_with_waiting_requests_are_listed(file_requests: Store[FileRequests]) -> None:
    port = file_requests.port
    assert port.tables() == ()
    port.add([request(1), request(2), request(3, OTHER)])
    assert file_requests.again().tables() == (TABLE, OTHER)
    port.assign("one", port.waiting(OTHER))
    assert port.tables() == (TABLE, OTHER)
    port.mark_sent(port.waiting(OTHER))
    assert port.tables() == (TABLE,)


def test_discarded_requests_stay_discarded(
    file_requests: Store[FileRequests],
) -> None:
    port = file_requests.port
    requests = [request(n) for n in range(FILES_PER_JOB_MAX + 5)]
    port.add(requests)
    port.assign("one", requests[:2])
    port.discard(port.waiting(TABLE)[1:])
    port.discard(requests[1:])
    port.discard([])
    port.add(requests[1:])
    assert [r.id for r in port.waiting(TABLE)] == [requests[0].id]
    with pytest.raises(ConflictError):
        port.assign("two", [requests[5]])
