"""Tasks record heartbeats, and are lost without them on AWS, and locally without a process."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sleeper.admin.tables import create_table
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.output import ReportKind
from sleeper.reports.service import report
from sleeper.runs import task as task_module
from sleeper.runs.task import record_task
from sleeper.workers.worker import Worker, WorkerSettings
from tests.clock import FakeClock
from tests.ports import with_ports

SCHEMA = '{"rowKeyFields":[{"name":"id","type":"StringType"}]}'
MINUTE_MS = 60_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    opened_instance = open_local_instance(tmp_path / "instance", clock)
    yield opened_instance
    opened_instance.close()


@pytest.fixture
def instance_on_aws(instance: Instance) -> Instance:
    """The instance, with tasks on other machines."""
    return with_ports(instance, jobs={"has_remote_tasks": True})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "PERIOD_SECONDS", 0.01)


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def heartbeats(instance: Instance) -> list[int | None]:
    return [task.heartbeat_ms for task in instance.jobs.tasks.recent()]


@pytest.mark.usefixtures("quick")
def test_a_worker_records_heartbeats_while_it_waits_and_works(
    instance_on_aws: Instance, clock: FakeClock
) -> None:
    stop = threading.Event()
    settings = WorkerSettings("ingest", (QueueName.INGEST,))
    worker = Worker(instance_on_aws, "t1", stop, settings)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        until(lambda: heartbeats(instance_on_aws) == [clock()])
        clock.now_ms += 1_000
        until(lambda: heartbeats(instance_on_aws) == [clock()])
    finally:
        stop.set()
        running.join()
    assert not instance_on_aws.jobs.tasks.task("t1").running
    assert not [t for t in threading.enumerate() if t.name == "heartbeat"]


@pytest.mark.usefixtures("quick")
def test_a_command_records_heartbeats_and_retries_if_the_tracker_is_unavailable(
    instance_on_aws: Instance, clock: FakeClock
) -> None:
    answers: list[str] = []

    class Tracker:
        def record(self, event: TaskEvent) -> None:
            if event.step is TaskStep.HEARTBEAT and not answers:
                answers.append("none")
                raise UnavailableError("busy")
            instance_on_aws.jobs.tasks.record(event)

    instance_with_tracker = with_ports(instance_on_aws, jobs={"tasks": Tracker()})
    with record_task(instance_with_tracker, JobKind.INGEST):
        until(lambda: heartbeats(instance_on_aws) == [clock()])
    assert answers == ["none"]


@pytest.mark.usefixtures("quick")
def test_a_local_instance_records_heartbeats_too(instance: Instance, clock: FakeClock) -> None:
    with record_task(instance, JobKind.INGEST):
        until(lambda: heartbeats(instance) == [clock()])


def rows(instance: Instance, kind: ReportKind) -> dict[str, dict[str, Any]]:
    (listing,) = report(instance, kind)
    names = [column.name for column in listing.columns]
    return {str(row[0]): dict(zip(names, row, strict=True)) for row in listing.rows}


def begin(instance: Instance, task_id: str, kind: JobKind, at_ms: int) -> None:
    """A task, and a job that it runs."""
    instance.jobs.tasks.record(TaskEvent(task_id, kind.value, TaskStep.STARTED, at_ms))
    table = instance.tables.index.find("t")
    instance.jobs.tracker.record(
        JobEvent(table.id, f"job of {task_id}", kind, JobStep.STARTED, at_ms, "r", task_id)
    )


def test_a_task_without_heartbeats_is_lost_after_the_visibility_timeout(
    instance_on_aws: Instance, instance: Instance, clock: FakeClock
) -> None:
    create_table(instance_on_aws, "t", SCHEMA)
    now = clock()
    for task_id in ("killed", "alive"):
        begin(instance_on_aws, task_id, JobKind.INGEST, now)
    heartbeat_ms = now + 14 * MINUTE_MS
    instance_on_aws.jobs.tasks.record(
        TaskEvent("alive", "ingest", TaskStep.HEARTBEAT, heartbeat_ms)
    )
    clock.now_ms = now + 15 * MINUTE_MS  # the queue's visibility timeout
    assert {row["state"] for row in rows(instance_on_aws, ReportKind.TASKS).values()} == {"running"}
    assert {row["state"] for row in rows(instance_on_aws, ReportKind.INGEST_JOBS).values()} == {
        "running"
    }

    clock.now_ms = now + 16 * MINUTE_MS
    tasks = rows(instance_on_aws, ReportKind.TASKS)
    assert (tasks["alive"]["state"], tasks["alive"]["heard"]) == ("running", heartbeat_ms)
    assert (tasks["killed"]["state"], tasks["killed"]["ended"]) == ("lost", None)
    assert tasks["killed"]["reason"] == "last heartbeat 16 minutes ago"
    jobs = rows(instance_on_aws, ReportKind.INGEST_JOBS)
    assert jobs["job of alive"]["state"] == "running"
    assert jobs["job of killed"]["state"] == "lost"
    assert jobs["job of killed"]["reason"] == "lost task: last heartbeat 16 minutes ago"
    (listing,) = report(instance_on_aws, ReportKind.TASKS)
    assert listing.summary == "2 tasks, 1 running, 1 lost"
    (listing,) = report(instance_on_aws, ReportKind.INGEST_JOBS)
    assert listing.summary == "2 ingest jobs: 1 running, 1 lost"
    # A local instance looks at processes, so the time alone loses no task.
    assert rows(instance, ReportKind.TASKS)["killed"]["state"] == "running"
    assert rows(instance, ReportKind.INGEST_JOBS)["job of killed"]["state"] == "running"


def test_a_job_that_another_task_restarted_is_not_lost(
    instance_on_aws: Instance, clock: FakeClock
) -> None:
    ref = create_table(instance_on_aws, "t", SCHEMA)
    begin(instance_on_aws, "killed", JobKind.INGEST, clock())
    clock.now_ms += 20 * MINUTE_MS
    begin(instance_on_aws, "other", JobKind.INGEST, clock())
    again = JobEvent(
        ref.id, "job of killed", JobKind.INGEST, JobStep.STARTED, clock(), "s", "other"
    )
    instance_on_aws.jobs.tracker.record(again)
    assert rows(instance_on_aws, ReportKind.INGEST_JOBS)["job of killed"]["state"] == "running"
    result = replace(again, step=JobStep.COMMITTED)
    instance_on_aws.jobs.tracker.record(result)
    clock.now_ms += 60 * MINUTE_MS
    assert rows(instance_on_aws, ReportKind.INGEST_JOBS)["job of killed"]["state"] == "committed"


def test_a_task_is_lost_after_three_missed_heartbeats_at_the_earliest(
    instance_on_aws: Instance,
) -> None:
    short = instance_on_aws.change_properties(
        {
            "sleeper.ingest.queue.visibility.timeout.seconds": "10",
            "sleeper.ingest.keepalive.period.seconds": "3",
        }
    )
    assert task_module.timeout_ms(short, "ingest") == 3 * MINUTE_MS
    assert task_module.timeout_ms(short, "compaction") == 15 * MINUTE_MS
    assert task_module.timeout_ms(short, "bulk_export") == 15 * MINUTE_MS
