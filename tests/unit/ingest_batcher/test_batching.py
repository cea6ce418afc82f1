"""Planned jobs of waiting files are sent despite crashes."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.ingest_batcher.plan import BatchJob, BatchLimits, create_batches
from sleeper.jobs.file_requests import SUBMISSIONS, FileRequest, FileRequests
from sleeper.local.file_requests import LocalFileRequests
from sleeper.local.folder import create_instance_folder
from sleeper.tables import TableId

TABLE = TableId("0000000a")
LIMITS = BatchLimits(0, 1000, 1, 3, 60_000)
NOW = 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileRequests]:
    instance = create_instance_folder(tmp_path / "instance", "test")
    yield LocalFileRequests(instance.database)
    instance.close()


def request(number: int) -> FileRequest:
    return FileRequest(TABLE, f"m-{number}", f"bucket/{number}", 10, NOW + number)


class Crash(BaseException):
    """Ends the process under test."""


@dataclasses.dataclass
class CrashingStore:
    """A store whose process ends just before or after the call of that number."""

    inner: FileRequests
    at_call: int
    after: bool
    calls: int = 0

    def __getattr__(self, name: str) -> object:
        method = getattr(self.inner, name)

        def call(*arguments: object) -> object:
            self.calls += 1
            if self.calls == self.at_call and not self.after:
                raise Crash
            result = method(*arguments)
            if self.calls == self.at_call:
                raise Crash
            return result

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at_call", range(1, 7))
def test_an_interrupted_run_neither_loses_nor_duplicates_files(
    store: FileRequests, at_call: int, after: bool
) -> None:
    store.add([request(n) for n in range(5)])
    messages: list[BatchJob] = []
    crashing_store = CrashingStore(store, at_call, after)
    with contextlib.suppress(Crash):
        create_batches(TABLE, crashing_store, LIMITS, messages.append, lambda: NOW)  # type: ignore[arg-type]
    create_batches(TABLE, store, LIMITS, messages.append, lambda: NOW)
    jobs = {job.id: job for job in messages}
    assert all(jobs[job.id] == job for job in messages), "one id, one content"
    files = [file for job in jobs.values() for file in job.files]
    assert sorted(files) == [f"bucket/{n}" for n in range(5)]
    assert store.waiting(TABLE) == ()


def test_a_failed_send_is_retried_under_the_same_id(store: FileRequests) -> None:
    store.add([request(0)])
    tried: list[BatchJob] = []

    def refuse(job: BatchJob) -> None:
        tried.append(job)
        raise Crash

    with pytest.raises(Crash):
        create_batches(TABLE, store, LIMITS, refuse, lambda: NOW)
    assert create_batches(TABLE, store, LIMITS, tried.append, lambda: NOW) == [tried[0]]
    assert tried[1] == tried[0]


def test_concurrent_runs_assign_each_file_once(store: FileRequests) -> None:
    store.add([request(n) for n in range(3)])
    messages: list[BatchJob] = []

    class Slow:
        def waiting(self, table_id: TableId) -> tuple[FileRequest, ...]:
            seen = store.waiting(table_id)
            create_batches(TABLE, store, LIMITS, messages.append, lambda: NOW)
            return seen

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

    create_batches(TABLE, Slow(), LIMITS, messages.append, lambda: NOW)  # type: ignore[arg-type]
    assert [job.files for job in messages] == [("bucket/0", "bucket/1", "bucket/2")]


def test_a_file_submitted_twice_is_in_the_job_once(store: FileRequests) -> None:
    again = dataclasses.replace(request(1), id="other", path="bucket/0")
    store.add([request(0), again])
    batches = create_batches(TABLE, store, LIMITS, lambda _: None, lambda: NOW)
    assert [job.files for job in batches] == [("bucket/0",)]


def test_a_partially_listed_job_is_left_to_the_next_run(store: FileRequests) -> None:
    store.add([request(0), request(1)])
    store.assign("job", [request(0), request(1)])

    class StaleStore:
        def waiting(self, table_id: TableId) -> tuple[FileRequest, ...]:
            return store.waiting(table_id)[:1]

    messages: list[BatchJob] = []
    create_batches(TABLE, StaleStore(), LIMITS, messages.append, lambda: NOW)  # type: ignore[arg-type]
    assert messages == []
    create_batches(TABLE, store, LIMITS, messages.append, lambda: NOW)
    assert [job.files for job in messages] == [("bucket/0", "bucket/1")]


def test_requests_are_assigned_all_or_none(store: FileRequests) -> None:
    store.add([request(0), request(1)])
    store.assign("one", [request(1)])
    with pytest.raises(ConflictError):
        store.assign("two", [request(0), request(1)])
    assert [r.job_id for r in store.waiting(TABLE)] == [None, "one"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not JSON"),
        ("[]", r"it is \[\] \(expected an object\)"),
        ('{"tableName":"t"}', r'"files" is missing \(expected a list\)'),
        ('{"tableName":"t","files":{}}', r'"files" is {} \(expected a list\)'),
        ('{"files":["a/b"]}', '"tableName" or "tableId" is missing'),
        ('{"tableName":[7],"files":["a/b"]}', r'"tableName" is \[7\] \(expected text\)'),
    ],
)
def test_an_invalid_message_is_rejected_with_its_reason(body: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        SUBMISSIONS.parse(body, "m")
