"""Asynchronous commits, from a run's message through queue and handler to log and tracker."""

import json
import random
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sleeper.admin.tables import delete_table
from sleeper.clock import system_clock
from sleeper.compaction.job import parse_compaction_job
from sleeper.compaction.plan import compact_table
from sleeper.compaction.service import run_compaction_message
from sleeper.errors import StateMovedOnError, UnavailableError
from sleeper.files import DataFile, new_data_path
from sleeper.ingest.service import run_ingest_message
from sleeper.instance import Instance
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep, new_run_id
from sleeper.jobs.queue import Message, QueueName
from sleeper.jobs.status import JobState, JobStatus
from sleeper.partitions.partition import ROOT_PARTITION_ID as ROOT
from sleeper.runs.commit import commit_later, has_committer
from sleeper.statestore.fold import DAY_MS
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.codec import encode
from sleeper.statestore.transactions.snapshot_loads import BeginLoad, PublishSnapshot
from sleeper.tables import TableId, TableRef
from tests.handlers import functions
from tests.handlers.conftest import (
    Lambda,
    add_rows,
    batch_of,
    context_with,
    failed,
    make_table,
    messages_of,
    write_parquet,
)
from tests.ports import with_ports

COMMITS = QueueName.COMMITS


@pytest.fixture
def aws(instance: Instance) -> Lambda:
    """With a queue of commits, as on AWS. The handler's own instance needs none."""
    return Lambda(with_ports(instance, jobs={"queues": (*instance.jobs.queues, COMMITS)}))


def transaction(job_id: str, start_ms: int | None = None, request: str | None = None) -> AddFiles:
    """Returns the transaction that an ingest of one file of 10 rows commits."""
    start_ms = start_ms or system_clock()
    file = DataFile(new_data_path("0a0b0c0d", ROOT, start_ms), 10, 100, (1,), (9,))
    return AddFiles(job_id, start_ms, (NewFile(file, ((ROOT, 10),)),), request)


def make_run(ref: TableRef, job_id: str) -> JobRunRef:
    return JobRunRef(ref.id, job_id, JobKind.INGEST, new_run_id(), "task")


def send_commit(aws: Lambda, ref: TableRef, added: AddFiles) -> JobRunRef:
    """Sends the commit of a run whose start is tracked."""
    run = make_run(ref, added.id)
    aws.instance.jobs.tracker.record(run.event(JobStep.STARTED, system_clock()))
    assert commit_later(aws.instance)(run, added) is None
    return run


def job(aws: Lambda, ref: TableRef, job_id: str) -> JobStatus:
    return aws.instance.jobs.tracker.job(ref.id, job_id)


def files(aws: Lambda, ref: TableRef) -> set[str]:
    with aws.instance.tables.state(ref.id).reading() as state:
        return {file.path for file in state.files.all()}


def list_paths(*added: AddFiles) -> set[str]:
    return {new.file.path for item in added for new in item.files}


def number(aws: Lambda, ref: TableRef) -> int:
    with aws.instance.tables.state(ref.id).reading() as state:
        return state.number


def entries(aws: Lambda, ref: TableRef) -> int:
    log = aws.instance.tables.state(ref.id)._log
    return len(log.read(0))


def commit(aws: Lambda) -> int:
    return aws.take(COMMITS, functions.commit_transactions)


def call(aws: Lambda, messages: Sequence[Message]) -> list[str]:
    return failed(aws.call(functions.commit_transactions, batch_of(messages)))


def test_messages_of_a_table_become_one_log_entry_and_their_jobs_are_recorded(
    aws: Lambda, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = make_table(aws.instance, "a"), make_table(aws.instance, "b")
    a_transactions = [transaction(f"a{i}") for i in range(6)]
    b_transactions = [transaction(f"b{i}") for i in range(4)]
    for additions in a_transactions:
        send_commit(aws, a, additions)
    for additions in b_transactions:
        send_commit(aws, b, additions)
    assert commit(aws) == 10
    assert (files(aws, a), files(aws, b)) == (
        list_paths(*a_transactions),
        list_paths(*b_transactions),
    )
    assert (entries(aws, a), entries(aws, b)) == (2, 2)
    assert {job(aws, a, additions.id).state for additions in a_transactions} == {JobState.COMMITTED}
    assert aws.instance.jobs.queue(COMMITS).counts().unfinished == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    metrics = [line for line in lines if "_aws" in line]
    assert {(m["table"], m["CommitsApplied"][0]) for m in metrics} == {("a", 6), ("b", 4)}


def test_a_refusal_is_reported_with_its_reason_and_blocks_no_other_job(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    good, late = transaction("good"), transaction("late", system_clock() - 8 * DAY_MS)
    for additions in (late, good):
        send_commit(aws, ref, additions)
    assert commit(aws) == 2
    assert files(aws, ref) == list_paths(good)
    refusals = job(aws, ref, "late")
    assert refusals.state is JobState.FAILED
    assert "half the orphan age" in refusals.reasons[0]
    assert job(aws, ref, "good").state is JobState.COMMITTED


def test_redelivered_messages_change_nothing(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    good, late = transaction("good"), transaction("late", system_clock() - 8 * DAY_MS)
    for additions in (good, late):
        send_commit(aws, ref, additions)
    messages = aws.instance.jobs.queue(COMMITS).receive(10)
    assert call(aws, messages) == []
    previous = (number(aws, ref), job(aws, ref, "good"), job(aws, ref, "late").state)
    assert call(aws, list(reversed(messages))) == []
    assert call(aws, [*messages, *messages]) == []
    assert (number(aws, ref), job(aws, ref, "good"), job(aws, ref, "late").state) == previous


def test_a_second_run_of_a_committed_job_leaves_it_committed(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    first, second = transaction("job"), transaction("job")
    send_commit(aws, ref, first)
    send_commit(aws, ref, second)
    assert commit(aws) == 2
    assert files(aws, ref) == list_paths(first)
    job_status = job(aws, ref, "job")
    assert job_status.state is JobState.COMMITTED
    assert sorted(run.state.value for run in job_status.runs) == ["committed", "failed"]


def test_a_second_run_of_the_same_request_is_already_done(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    first, second = transaction("job", request="files"), transaction("job", request="files")
    send_commit(aws, ref, first)
    send_commit(aws, ref, second)
    assert commit(aws) == 2
    assert files(aws, ref) == list_paths(first)
    assert {run.state for run in job(aws, ref, "job").runs} == {JobState.COMMITTED}


def test_a_large_commit_uses_an_object_that_is_deleted_afterwards(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    big = transaction("big", request=random.Random(1).randbytes(150_000).hex())
    send_commit(aws, ref, big)
    (message,) = aws.instance.jobs.queue(COMMITS).receive(10)
    assert len(message.body) < 1000
    path = json.loads(message.body)["object"]
    assert path.startswith(f"{ref.id}/commits/")
    assert call(aws, [message]) == []
    assert files(aws, ref) == list_paths(big)
    assert not Path(aws.instance.where, path).exists()
    # The answer was lost, so it comes again.
    assert call(aws, [message]) == []
    assert job(aws, ref, "big").state is JobState.COMMITTED


def test_a_large_commit_with_a_lost_object_is_reported(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    send_commit(aws, ref, transaction("big", request=random.Random(1).randbytes(150_000).hex()))
    (message,) = aws.instance.jobs.queue(COMMITS).receive(10)
    Path(aws.instance.where, json.loads(message.body)["object"]).unlink()
    assert call(aws, [message]) == []
    assert "the commit is gone" in job(aws, ref, "big").reasons[0]


def test_a_commit_to_a_table_that_was_deleted_is_rejected(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    other = make_table(aws.instance, "other")
    send_commit(aws, ref, transaction("late"))
    send_commit(aws, other, transaction("good"))
    delete_table(aws.instance, "t")
    assert commit(aws) == 2
    job_status = job(aws, ref, "late")
    assert (job_status.state, "being deleted" in job_status.reasons[0]) == (JobState.REJECTED, True)
    assert job(aws, other, "good").state is JobState.COMMITTED


def read_event(job_id: str) -> dict[str, Any]:
    return {"kind": "ingest", "jobId": job_id, "runId": "r", "taskId": None}


UNREADABLE = [
    "no json",
    "[]",
    "{}",
    '{"tableId": "0a0b0c0d"}',
    '{"tableId": "0a0b0c0d", "transactions": []}',
    '{"tableId": "0a0b0c0d", "transactions": [1]}',
    '{"tableId": "0a0b0c0d", "transactions": ["{}"], "event": {"kind": "x"}}',
    '{"tableId": "0a0b0c0d", "transactions": ["{}"]}',
]


@pytest.mark.parametrize("body", UNREADABLE)
def test_a_message_without_a_run_becomes_a_dead_letter(aws: Lambda, body: str) -> None:
    ref = make_table(aws.instance, "t")
    good = transaction("good")
    send_commit(aws, ref, good)
    (message,) = aws.instance.jobs.queue(COMMITS).receive(10)
    poison = replace(message, message_id="poison", body=body)
    assert call(aws, [poison, message]) == ["poison"]
    assert files(aws, ref) == list_paths(good)


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "{}",
        '{"kind": "add_files", "version": 1, "id": "bad"}',
        '{"kind": "add_files", "version": 1, "id": "bad", "run_start": "x", "files": []}',
    ],
)
def test_an_unreadable_transaction_is_rejected_alone(aws: Lambda, line: str) -> None:
    ref = make_table(aws.instance, "t")
    good = transaction("good")
    send_commit(aws, ref, good)
    (message,) = aws.instance.jobs.queue(COMMITS).receive(10)
    body = json.dumps({"tableId": ref.id, "event": read_event("bad"), "transactions": [line]})
    assert call(aws, [replace(message, message_id="bad", body=body), message]) == []
    assert files(aws, ref) == list_paths(good)
    assert job(aws, ref, "bad").state is JobState.REJECTED


def test_a_transaction_of_a_newer_version_waits_for_a_newer_committer(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    line = json.dumps({"kind": "add_files", "version": 99, "id": "new"})
    body = json.dumps({"tableId": ref.id, "event": read_event("new"), "transactions": [line]})
    assert call(aws, messages_of(body, groups=[ref.id])) == ["m0"]


def test_an_unavailable_table_returns_its_commits_and_others_continue(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, fine = make_table(aws.instance, "stuck"), make_table(aws.instance, "fine")
    additions = {ref: [transaction(f"{ref.name}{i}") for i in range(2)] for ref in (stuck, fine)}
    for ref in (stuck, fine):
        for addition in additions[ref]:
            send_commit(aws, ref, addition)
    state = functions_instance(aws).tables.state

    def unavailable(table_id: TableId) -> Any:
        if table_id == stuck.id:
            raise UnavailableError("throttled")
        return state(table_id)

    with monkeypatch.context() as patch:
        replace_ports(patch, aws, tables={"state": unavailable})
        assert commit(aws) == 2
    assert files(aws, fine) == list_paths(*additions[fine])
    assert files(aws, stuck) == set()
    assert job(aws, stuck, "stuck0").state is JobState.RUNNING


def test_an_unavailable_table_index_returns_all_commits(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = make_table(aws.instance, "t")
    addition = transaction("a")
    send_commit(aws, ref, addition)
    messages = aws.instance.jobs.queue(COMMITS).receive(10)

    class Throttled:
        def get_all(self, table_ids: Collection[TableId]) -> Mapping[TableId, TableRef]:
            raise UnavailableError("throttled")

    with monkeypatch.context() as patch:
        replace_ports(patch, aws, tables={"index": Throttled()})
        assert call(aws, messages) == [m.message_id for m in messages]
    assert files(aws, ref) == set()
    assert call(aws, messages) == []
    assert files(aws, ref) == list_paths(addition)


def test_an_unrecorded_outcome_is_recorded_when_the_message_is_redelivered(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = make_table(aws.instance, "t")
    late = transaction("late", system_clock() - 8 * DAY_MS)
    send_commit(aws, ref, transaction("good"))
    send_commit(aws, ref, late)
    messages = aws.instance.jobs.queue(COMMITS).receive(10)

    class Silent:
        def record(self, *events: JobEvent) -> None:
            raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        replace_ports(patch, aws, jobs={"tracker": Silent()})
        assert set(call(aws, messages)) == {m.message_id for m in messages}
    assert call(aws, messages) == []
    assert job(aws, ref, "good").state is JobState.COMMITTED
    assert job(aws, ref, "late").state is JobState.FAILED


@pytest.mark.parametrize("seed", range(3))
def test_redelivered_batches_commit_each_job_once(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    choice = random.Random(seed)
    refs = [make_table(aws.instance, name) for name in ("a", "b", "c")]
    additions = {(ref, i): transaction(f"{ref.name}{i}") for ref in refs for i in range(8)}
    for (ref, _), entry in additions.items():
        send_commit(aws, ref, entry)
    pending: list[Message] = []
    while some := aws.instance.jobs.queue(COMMITS).receive(10):
        pending += some
        for message in some:
            aws.instance.jobs.queue(COMMITS).delete(message.receipt)
    assert len(pending) == len(additions)
    state = functions_instance(aws).tables.state

    def often_unavailable(table_id: TableId) -> Any:
        if choice.random() < 0.3:
            raise UnavailableError("throttled")
        return state(table_id)

    with monkeypatch.context() as patch:
        replace_ports(patch, aws, tables={"state": often_unavailable})
        while pending:
            batch = choice.sample(pending, min(len(pending), 10))
            result = call(aws, batch)
            # Of what was done, some come again all the same: the answer was lost.
            pending = [
                m
                for m in pending
                if m not in batch or m.message_id in result or choice.random() < 0.2
            ]
    for ref in refs:
        table_additions = [item for (table, _), item in additions.items() if table == ref]
        assert files(aws, ref) == list_paths(*table_additions)
        assert number(aws, ref) == 1 + len(table_additions)
        assert {job(aws, ref, item.id).state for item in table_additions} == {JobState.COMMITTED}


def functions_instance(aws: Lambda) -> Instance:
    """The handler's own instance."""
    from sleeper.workers import lambda_function

    return lambda_function._opened(aws.instance.where)


def replace_ports(patch: pytest.MonkeyPatch, aws: Lambda, **groups: Mapping[str, Any]) -> None:
    changed = with_ports(functions_instance(aws), **groups)
    open_changed: Callable[[object], Instance] = lambda _: changed  # noqa: E731
    patch.setattr("sleeper.workers.lambda_function._opened", open_changed)


def test_an_ingest_uses_the_committer_if_the_table_property_is_set(
    aws: Lambda, tmp_path: Path
) -> None:
    ref = make_table(aws.instance, "t", ingest_files_commit_async="true")
    path = write_parquet(tmp_path / "rows.parquet", [1, 2, 3])
    body = json.dumps({"id": "j", "tableName": "t", "files": [str(path)]})
    message = Message("m", body, "receipt", 1, system_clock())
    result = run_ingest_message(aws.instance, message, "task")
    assert (result.rows, result.number, result.queued) == (3, None, True)
    assert job(aws, ref, "j").state is JobState.FINISHED
    assert files(aws, ref) == set()
    assert commit(aws) == 1
    job_status = job(aws, ref, "j")
    assert job_status.state is JobState.COMMITTED
    assert len(job_status.runs) == 1
    assert job_status.last_run is not None
    assert (job_status.last_run.rows_written, job_status.last_run.task_id) == (3, "task")
    assert len(files(aws, ref)) == 1
    assert run_ingest_message(aws.instance, message).done_before


def test_an_ingest_commits_directly_by_default(aws: Lambda, tmp_path: Path) -> None:
    ref = make_table(aws.instance, "t")
    path = write_parquet(tmp_path / "rows.parquet", [1])
    body = json.dumps({"id": "j", "tableName": "t", "files": [str(path)]})
    assert not run_ingest_message(aws.instance, Message("m", body, "r", 1, system_clock())).queued
    assert job(aws, ref, "j").state is JobState.COMMITTED


def test_a_compaction_is_committed_by_the_committer(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    add_rows(aws.instance, "t", 1, 2)
    add_rows(aws.instance, "t", 3)
    compact_table(aws.instance, "t", full=True)
    (message,) = aws.instance.jobs.queue(QueueName.COMPACTION).receive()
    job_id = parse_compaction_job(message.body).id
    assert run_compaction_message(aws.instance, message.body, "task") == (3, 3)
    assert job(aws, ref, job_id).state is JobState.FINISHED
    assert len(files(aws, ref)) == 2
    assert commit(aws) == 1
    assert len(files(aws, ref)) == 1
    job_status = job(aws, ref, job_id)
    assert (job_status.state, len(job_status.runs)) == (JobState.COMMITTED, 1)


def test_a_compaction_commits_directly_if_the_table_property_is_set(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t", compaction_job_commit_async="false")
    add_rows(aws.instance, "t", 1)
    add_rows(aws.instance, "t", 2)
    compact_table(aws.instance, "t", full=True)
    (message,) = aws.instance.jobs.queue(QueueName.COMPACTION).receive()
    run_compaction_message(aws.instance, message.body)
    assert len(files(aws, ref)) == 1


def test_a_local_instance_has_no_committer(instance: Instance) -> None:
    assert not has_committer(instance)


def test_no_compaction_jobs_are_created_while_the_committer_is_behind(
    aws: Lambda, caplog: pytest.LogCaptureFixture
) -> None:
    ref = make_table(aws.instance, "t")
    add_rows(aws.instance, "t", 1)
    add_rows(aws.instance, "t", 2)
    aws.instance.change_properties({"sleeper.statestore.commit.backlog.max": "2"})
    for i in range(3):
        send_commit(aws, ref, transaction(f"j{i}"))
    assert compact_table(aws.instance, "t", full=True).is_waiting
    assert "3 commits are waiting for the committer, more than 2" in caplog.text
    assert aws.instance.jobs.queue(QueueName.COMPACTION).counts().unfinished == 0
    commit(aws)
    assert compact_table(aws.instance, "t", full=True).created == 1


@pytest.mark.parametrize("error", [OSError(28, "no space left on device"), MemoryError()])
def test_a_commit_that_lacks_a_resource_returns_to_the_queue(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ref = make_table(aws.instance, "t")
    good = transaction("good")
    send_commit(aws, ref, good)
    (message,) = aws.instance.jobs.queue(COMMITS).receive(10)

    def broken(_: TableId) -> Any:
        raise error

    with monkeypatch.context() as patch:
        replace_ports(patch, aws, tables={"state": broken})
        assert call(aws, [message]) == [message.message_id]
    assert job(aws, ref, "good").state is JobState.RUNNING
    assert call(aws, [message]) == []
    assert files(aws, ref) == list_paths(good)


@pytest.mark.parametrize("place", ["{id}/data/x.parquet", "{other}/commits/x.json", "x", ""])
def test_objects_of_other_prefixes_are_neither_read_nor_deleted(aws: Lambda, place: str) -> None:
    ref, other = make_table(aws.instance, "t"), make_table(aws.instance, "other")
    path = place.format(id=ref.id, other=other.id)
    remaining = Path(aws.instance.where, path or "y")
    remaining.parent.mkdir(parents=True, exist_ok=True)
    remaining.write_text(json.dumps([encode(transaction("bad")).line]))
    body = json.dumps({"tableId": ref.id, "event": read_event("bad"), "object": path})
    assert call(aws, messages_of(body, groups=[ref.id])) == ["m0"]
    assert remaining.exists()
    assert files(aws, ref) == set()


def test_failed_messages_return_with_increasing_delays_and_poison_immediately(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FIFO order delays the table's later commits until then."""
    ref = make_table(aws.instance, "t")
    send_commit(aws, ref, transaction("a"))
    (message,) = aws.instance.jobs.queue(COMMITS).receive(10)
    poison = replace(message, message_id="poison", body="no json", receipt="poison")
    result: list[tuple[str, float]] = []

    class Queue:
        def release(self, receipt: str, delay_seconds: float) -> None:
            result.append((receipt, delay_seconds))
            raise UnavailableError("no answer")  # then they return by themselves

    def unavailable(_: TableId) -> Any:
        raise UnavailableError("throttled")

    with monkeypatch.context() as patch:
        replace_ports(patch, aws, tables={"state": unavailable}, jobs={"queue": lambda _: Queue()})
        for receives in (1, 2, 20):
            again = replace(message, receives=receives)
            assert set(call(aws, [poison, again])) == {"poison", message.message_id}
    assert dict.fromkeys(result) == dict.fromkeys(
        [("poison", 0), (message.receipt, 5), (message.receipt, 10), (message.receipt, 300)]
    )


class KilledError(BaseException):
    """The function ends without an answer, as out of memory or out of time."""


def poisoned(aws: Lambda, poison: TableRef, error: BaseException) -> Callable[[TableId], Any]:
    """Opens states of tables; one raises the error at each commit."""
    state = functions_instance(aws).tables.state

    class Poison:
        def commit(self, *transactions: AddFiles) -> Any:
            raise error

    return lambda table_id: Poison() if table_id == poison.id else state(table_id)


def is_on_queue(aws: Lambda, message: Message) -> bool:
    try:
        aws.instance.jobs.queue(COMMITS).extend(message.receipt, 60)
    except StateMovedOnError:
        return False
    return True


def test_a_commit_that_kills_the_committer_does_not_block_others_for_long(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = make_table(aws.instance, "poison")
    others = [make_table(aws.instance, name) for name in ("a", "b", "c")]
    for ref in (poison, *others):
        send_commit(aws, ref, transaction(f"of-{ref.name}"))
    pending, rounds = list(aws.instance.jobs.queue(COMMITS).receive(10)), 0
    kills = poisoned(aws, poison, KilledError())
    while len(pending) > 1:
        rounds += 1
        assert rounds < 30
        messages = [replace(message, receives=rounds) for message in pending]
        with monkeypatch.context() as patch:
            replace_ports(patch, aws, tables={"state": kills})
            with pytest.raises(KilledError):
                call(aws, messages)
        # A killed function returns nothing: all that it did not delete come again.
        pending = [message for message in pending if is_on_queue(aws, message)]
    assert [message.group for message in pending] == [poison.id]
    for ref in others:
        assert job(aws, ref, f"of-{ref.name}").state is JobState.COMMITTED


def test_a_commit_that_cannot_be_applied_fails_alone(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = make_table(aws.instance, "t")
    for name in ("good", "bad", "better"):
        send_commit(aws, ref, transaction(name))
    state = functions_instance(aws).tables.state

    class Broken:
        def commit(self, *transactions: AddFiles) -> Any:
            if any(item.id == "bad" for item in transactions):
                raise sqlite3.IntegrityError("constraint failed")
            return state(ref.id).commit(*transactions)

    messages = aws.instance.jobs.queue(COMMITS).receive(10)
    with monkeypatch.context() as patch:
        replace_ports(patch, aws, tables={"state": lambda _: Broken()})
        assert call(aws, messages) == [messages[1].message_id]
    assert job(aws, ref, "good").state is JobState.COMMITTED
    assert job(aws, ref, "better").state is JobState.COMMITTED
    assert job(aws, ref, "bad").state is JobState.RUNNING


def test_redelivered_commits_are_committed_individually(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    for i in range(5):
        send_commit(aws, ref, transaction(f"job-{i}"))
    messages = aws.instance.jobs.queue(COMMITS).receive(10)
    again = [replace(m, receives=m.receives + (i < 3)) for i, m in enumerate(messages)]
    assert call(aws, again) == []
    # The table's creation, the two new ones together, and three alone.
    assert entries(aws, ref) == 1 + 1 + 3
    assert aws.instance.jobs.queue(COMMITS).counts().unfinished <= 2


def test_a_committer_that_runs_out_of_time_returns_the_rest_at_once(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t")
    for i in range(3):
        send_commit(aws, ref, transaction(f"job-{i}"))
    messages = [replace(m, receives=2) for m in aws.instance.jobs.queue(COMMITS).receive(10)]
    left = iter([60.0, 60.0, *[1.0] * 10])
    context = context_with(lambda: next(left))
    result = failed(aws.call(functions.commit_transactions, batch_of(messages), context))
    assert len(result) == 2
    assert {m.message_id for m in aws.instance.jobs.queue(COMMITS).receive(10)} == set(result)


def test_an_overtaken_load_is_recorded_as_rejected(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t", type="snapshot")
    state = aws.instance.tables.state(ref.id)
    begun = [state.commit_or_raise(BeginLoad(job_id)) or 0 for job_id in ("early", "late")]
    early, late = (
        PublishSnapshot(added.id, added.run_start_ms, added.files, begun=number)
        for added, number in zip((transaction("early"), transaction("late")), begun, strict=True)
    )
    send_commit(aws, ref, late)
    send_commit(aws, ref, early)
    assert commit(aws) == 2
    assert files(aws, ref) == list_paths(late)
    assert job(aws, ref, "late").state is JobState.COMMITTED
    refused = job(aws, ref, "early")
    assert refused.state is JobState.REJECTED
    assert "which began later" in refused.reasons[0]
