"""A worker keeps its message while it works."""

import errno
import json
import os
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sleeper.clock import system_clock
from sleeper.errors import DataError, StateMovedOnError, UnavailableError, UserCodeError
from sleeper.ingest.service import submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.queue import DeadLetter, Failure, Message, QueueName
from sleeper.jobs.status import JobState
from sleeper.local.database import InstanceDatabase
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.jobs import list_dead_letters
from sleeper.runs.retry_policy import RETRY_POLICIES, RetryPolicy
from sleeper.tables import TableRef
from sleeper.workers.run_status import JobOutcome, JobReport
from sleeper.workers.worker import Worker, WorkerSettings, visibility_renewal
from tests.clock import FakeClock
from tests.ports import with_ports
from tests.system.bad_days import make_table, write

MESSAGE = Message("m", "{}", "receipt", 1, 0)


class BusyQueue:
    """Answers extensions of a message's visibility with these errors, then successfully."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.extend_count = 0

    def extend(self, *_: Any) -> None:
        self.extend_count += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


def test_a_queue_that_did_not_answer_is_asked_again() -> None:
    queue = BusyQueue(UnavailableError("busy"))
    with visibility_renewal(queue, MESSAGE, 0.03, 0.01):  # type: ignore[arg-type]
        deadline = time.monotonic() + 60
        while queue.extend_count < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert queue.extend_count >= 3


def test_a_message_that_is_lost_is_not_asked_for_again() -> None:
    queue = BusyQueue(StateMovedOnError("gone"))
    with visibility_renewal(queue, MESSAGE, 0.03, 0.01):  # type: ignore[arg-type]
        time.sleep(0.2)
    assert queue.extend_count == 1


def test_a_job_that_fails_is_tried_again_later_each_time(tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "test")
    release_delays: list[float] = []

    class Queue(BusyQueue):
        def receive(self, wait_seconds: float) -> tuple[Message, ...]:
            body = json.dumps({"tableId": "0000000a", "partitionId": "root"})
            return (replace(MESSAGE, body=body, receives=len(release_delays) + 1),)

        def release(self, _: str, delay_seconds: float, failure: Failure) -> None:
            assert failure.reason == "no answer"
            release_delays.append(delay_seconds)

    def unavailable(_: str) -> TableRef:
        raise UnavailableError("no answer")

    queue = Queue()
    with closing(open_local_instance(tmp_path / "instance")) as instance:
        tables = SimpleNamespace(get=unavailable)
        instance_with_queue = with_ports(
            instance, jobs={"queue": lambda _: queue}, tables={"index": tables}
        )
        policies = {QueueName.SPLITTING: RetryPolicy((), (10.0, 120.0))}
        settings = WorkerSettings("split", (QueueName.SPLITTING,), retry_policies=policies)
        worker = Worker(instance_with_queue, "t", threading.Event(), settings)
        for _ in range(4):
            assert worker.run_one()
    assert release_delays == [10.0, 120.0, 120.0, 120.0]


def start_next_try(instance: Instance, clock: FakeClock) -> float:
    """Advances the clock until the worker receives the message again; returns the seconds."""
    original = clock.now_ms
    (row,) = InstanceDatabase(Path(instance.where) / "instance.db").read(
        "SELECT due_ms FROM messages"
    )
    clock.now_ms = max(clock.now_ms, row["due_ms"])
    return (clock.now_ms - original) / 1000


def test_a_local_job_that_lacks_a_resource_is_tried_for_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    clock = FakeClock(system_clock())
    rows = write(tmp_path / "rows.parquet", [("a", 1)])

    def raise_too_many_files(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with closing(open_local_instance(tmp_path / "instance", clock)) as instance:
        make_table(instance)
        submit_ingest(instance, "rows", [str(rows)], "j1")
        table_id = instance.table("rows").ref.id
        worker = Worker(instance, "task", threading.Event())
        waits = []
        with monkeypatch.context() as patch:
            patch.setattr("sleeper.datafiles.sources.parquet.pq.ParquetFile", raise_too_many_files)
            for _ in range(8):
                assert worker.run_one()
                assert not worker.run_one()
                assert instance.jobs.tracker.job(table_id, "j1").state is JobState.FAILED
                waits.append(start_next_try(instance, clock))
        assert waits == [5, 10, 20, 40, 80, 160, 300, 300]
        assert worker.run_one()
        assert instance.jobs.tracker.job(table_id, "j1").state is JobState.COMMITTED
        assert not instance.jobs.dead_letters(QueueName.INGEST).list()


def test_the_last_try_of_a_local_job_leaves_a_dead_letter_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_local_instance(tmp_path / "instance", "test")
    clock = FakeClock(system_clock())

    def fail(*_: object) -> None:
        raise UserCodeError("the iterator failed")

    monkeypatch.setattr("sleeper.splitting.service.run_split_message", fail)
    with closing(open_local_instance(tmp_path / "instance", clock)) as instance:
        instance.jobs.queue(QueueName.SPLITTING).send("{}")
        reports: list[JobReport] = []
        worker = Worker(instance, "task", threading.Event(), on_job=reports.append)
        for _ in range(3):
            start_next_try(instance, clock)
            assert worker.run_one()
        (letter,) = instance.jobs.dead_letters(QueueName.SPLITTING).list()
        assert letter.reason == "the iterator failed"
        assert [each.outcome for each in reports] == [JobOutcome.FAILED] * 3
        assert reports[0].reason == "the iterator failed"
        (row,) = list_dead_letters(instance).rows
        assert "the iterator failed" in row


def test_an_unavailable_resource_leaves_a_dead_letter_after_an_hour_at_the_earliest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_local_instance(tmp_path / "instance", "test")
    clock = FakeClock(system_clock())

    def fail(*_: object) -> None:
        raise UnavailableError("the disk is full")

    monkeypatch.setattr("sleeper.splitting.service.run_split_message", fail)
    with closing(open_local_instance(tmp_path / "instance", clock)) as instance:
        queue, letters = (
            instance.jobs.queue(QueueName.SPLITTING),
            instance.jobs.dead_letters(QueueName.SPLITTING),
        )
        queue.send("{}")
        worker = Worker(instance, "task", threading.Event())
        start_ms, tries = clock.now_ms, 0
        while queue.counts().unfinished:
            start_next_try(instance, clock)
            assert worker.run_one()
            tries += 1
        assert clock.now_ms - start_ms > 3_600_000
        assert tries < 25
        assert letters.list()[0].reason == "the disk is full"
        assert letters.redrive() == 1
        assert queue.receive()[0].failures == 0


def test_a_queue_without_reasons_has_those_of_the_job_tracker(tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "test")
    body = json.dumps({"id": "j1", "tableName": "rows", "files": []})
    letters = (DeadLetter("m1", body, 3, 0, None), DeadLetter("m2", "not JSON", 3, 0, None))
    with closing(open_local_instance(tmp_path / "instance")) as instance:
        make_table(instance)
        run = JobRunRef(instance.table("rows").ref.id, "j1", JobKind.INGEST, "r1")
        instance.jobs.tracker.record(run.event(JobStep.FAILED, 5, reasons=("no space",)))
        dead = {"dead_letters": lambda _: SimpleNamespace(list=lambda _: letters)}
        rows = list_dead_letters(with_ports(instance, jobs=dead), "ingest").rows
    assert [row[5] for row in rows] == ["no space", None]


def test_a_dead_letter_of_dead_workers_says_so(tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "test")
    clock = FakeClock(system_clock())
    with closing(open_local_instance(tmp_path / "instance", clock)) as instance:
        queue = instance.jobs.queue(QueueName.SPLITTING)
        queue.send("{}")
        for _ in range(3):
            start_next_try(instance, clock)
            assert queue.receive()
        start_next_try(instance, clock)
        (letter,) = instance.jobs.dead_letters(QueueName.SPLITTING).list()
        assert letter.reason == (
            "no failure is recorded: each of its workers died or was interrupted"
        )


def test_receives_of_a_job_on_aws_span_ten_minutes_if_a_resource_is_unavailable() -> None:
    policy, error = RETRY_POLICIES[QueueName.INGEST], UnavailableError("no answer")
    delays = [policy.delay_seconds(replace(MESSAGE, receives=n), error) for n in (1, 2)]
    assert sum(delays) >= 600


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (QueueName.INGEST, DataError("a torn file")),
        (QueueName.COMPACTION, UserCodeError("an iterator failed")),
        (QueueName.LEAF_QUERY, UnavailableError("the disk is full")),
    ],
)
def test_a_try_follows_soon_where_waiting_is_no_cure_or_a_caller_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: QueueName, error: Exception
) -> None:
    create_local_instance(tmp_path / "instance", "test")
    clock = FakeClock(system_clock())

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("sleeper.ingest.service.run_ingest_message", fail)
    monkeypatch.setattr("sleeper.compaction.service.run_compaction_message", fail)
    monkeypatch.setattr("sleeper.query_service.run.run_leaf_query_message", fail)
    with closing(open_local_instance(tmp_path / "instance", clock)) as instance:
        instance.jobs.queue(name).send("{}")
        worker = Worker(instance, "task", threading.Event())
        assert worker.run_one()
        assert start_next_try(instance, clock) == 2.0
