"""Runs of adapters by workers, and on a platform."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.adapters import queued_run
from sleeper.adapters.definition import Adapter, DatabaseSource, FilesSource, TableSink
from sleeper.adapters.message import send_run
from sleeper.adapters.queued_run import SparkRun
from sleeper.adapters.store import AdapterStore
from sleeper.admin.tables import create_table
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.queue import QueueName
from sleeper.jobs.spark_platform import RunState
from sleeper.jobs.status import JobState, JobStatus
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.runs.tracking import RunTracker
from sleeper.schedule import make_schedule
from sleeper.workers.runner import run_instance
from sleeper.workers.worker import Worker
from tests.clock import FakeClock
from tests.handlers.fake_platform import FakePlatform
from tests.ports import with_ports

SCHEMA = '{"rowKeyFields": [{"name": "k", "type": "LongType"}]}'


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    settings = {"sleeper.engine.threads": "1"}
    create_local_instance(tmp_path / "instance", "test", settings)
    with closing(open_local_instance(tmp_path / "instance", clock)) as opened:
        create_table(opened, "sink", SCHEMA)
        yield opened


@pytest.fixture
def adapter(instance: Instance, tmp_path: Path) -> Adapter:
    file = tmp_path / "rows.csv"
    file.write_text("k\n1\n2\n")
    adapter = Adapter("orders", FilesSource((str(file),)), TableSink("sink"))
    AdapterStore(instance.storage.root).create(adapter)
    return adapter


def run_worker(instance: Instance, clock: FakeClock) -> int:
    """Runs messages, also those that are delayed. Returns the number of receives."""
    worker, received = Worker(instance, "task", threading.Event()), 0
    queue = instance.jobs.queue(QueueName.ADAPTER)
    while queue.counts().unfinished:
        received += worker.run_one()
        clock.pass_minutes(10)
    return received


def find_job(instance: Instance, job_id: str) -> JobStatus:
    return instance.jobs.tracker.job(instance.table("sink").ref.id, job_id)


def test_a_worker_runs_an_adapter_once(
    instance: Instance, clock: FakeClock, adapter: Adapter
) -> None:
    for _ in range(2):
        send_run(instance, adapter, "1")
        clock.pass_minutes(6)
    assert run_worker(instance, clock) == 2
    job = find_job(instance, adapter.job_id("1"))
    assert (job.kind, job.state) == (JobKind.ADAPTER, JobState.COMMITTED)
    with instance.table("sink").state.reading() as state:
        assert sum(reference.rows for reference in state.files.references()) == 2
        assert state.number == 2


def test_a_failing_run_is_retried_and_becomes_a_dead_letter_with_its_reason(
    instance: Instance,
    clock: FakeClock,
    adapter: Adapter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(opened: Instance, name: str, run_id: str, *_: object, **__: object) -> None:
        ref = opened.table("sink").ref
        run = JobRunRef(ref.id, adapter.job_id(run_id), JobKind.ADAPTER, str(clock()))
        event = run.event(JobStep.FAILED, clock(), reasons=("shop.example does not answer",))
        opened.jobs.tracker.record(event)
        raise DataError("shop.example does not answer")

    monkeypatch.setattr(queued_run, "run_adapter", fail)
    send_run(instance, adapter, "1")
    assert run_worker(instance, clock) == 3
    (letter,) = instance.jobs.dead_letters(QueueName.ADAPTER).list()
    assert letter.body == '{"adapter":"orders","runId":"1"}'
    assert letter.reason == "shop.example does not answer"
    job = find_job(instance, adapter.job_id("1"))
    assert job.state is JobState.FAILED
    assert job.runs[-1].reasons == ("shop.example does not answer",)


def test_a_run_of_a_deleted_adapter_is_rejected(
    instance: Instance, clock: FakeClock, adapter: Adapter
) -> None:
    send_run(instance, adapter, "1")
    AdapterStore(instance.storage.root).delete("orders")
    instance.jobs.queue(QueueName.ADAPTER).send("{", group="orders")
    assert run_worker(instance, clock) == 2
    rejected = [job for job in instance.jobs.tracker.recent() if job.state is JobState.REJECTED]
    reasons = [reason for job in rejected for reason in job.reasons]
    assert any("adapter 'orders' does not exist" in reason for reason in reasons)
    assert any("adapter message is not JSON" in reason for reason in reasons)


def test_a_run_of_an_adapter_that_tasks_cannot_run_any_more_is_rejected(
    instance: Instance, clock: FakeClock, adapter: Adapter
) -> None:
    send_run(instance, adapter, "1")
    source = DatabaseSource("postgresql://h/d", table="t", password="file:/etc/hostname")
    AdapterStore(instance.storage.root).replace(replace(adapter, source=source))
    assert run_worker(replace(instance, background=None), clock) == 1
    job = find_job(instance, adapter.job_id("1"))
    assert job.state is JobState.REJECTED
    assert "tasks read only Secrets Manager" in job.reasons[0]


def test_a_run_that_waited_longer_than_ids_are_kept_is_rejected(
    instance: Instance, clock: FakeClock, adapter: Adapter
) -> None:
    send_run(instance, adapter, "1")
    clock.pass_minutes(30 * 24 * 60)
    assert run_worker(instance, clock) == 1
    job = find_job(instance, adapter.job_id("1"))
    assert job.state is JobState.REJECTED
    assert "was sent 30 days ago" in job.reasons[0]


@pytest.mark.slow
def test_a_local_instance_runs_what_is_due_and_ends(tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    (tmp_path / "rows.csv").write_text("k\n1\n")
    with closing(open_local_instance(tmp_path / "instance")) as instance:
        create_table(instance, "sink", SCHEMA)
        hours_ago_ms = instance.clock() - 5 * 3_600_000
        for name, expression in (("due", "2h"), ("later", "6h")):
            adapter = Adapter(
                name,
                FilesSource((str(tmp_path / "rows.csv"),)),
                TableSink("sink"),
                make_schedule(expression, hours_ago_ms),
            )
            AdapterStore(instance.storage.root).create(adapter)
        assert run_instance(instance, until_idle=True, workers=1).idle
        (job,) = instance.jobs.tracker.recent(JobKind.ADAPTER)
        assert job.job_id.startswith("adapter-due")
        assert job.state is JobState.COMMITTED
        assert run_instance(instance, until_idle=True, workers=1).idle
        assert len(instance.jobs.tracker.recent(JobKind.ADAPTER)) == 1


SHOP = Adapter(
    "shop",
    DatabaseSource("postgresql://shop.example/shop", table="orders", partition_column="id"),
    TableSink("sink"),
)


def on_platform(instance: Instance, platform: FakePlatform) -> Instance:
    return with_ports(instance, jobs={"spark_platform": lambda _: platform})


def record_run(instance: Instance, platform: FakePlatform, *steps: JobStep) -> None:
    """Records steps of the newest run, as its driver does."""
    job = list(platform.runs.values())[-1]
    run = JobRunRef(instance.table("sink").ref.id, job.job_id, JobKind.ADAPTER, job.run_id)
    for step in steps:
        rows = 7 if step is JobStep.FINISHED else None
        event = run.event(step, instance.clock(), rows_written=rows)
        instance.jobs.tracker.record(event)


def test_a_run_by_spark_is_submitted_once_and_awaited(instance: Instance) -> None:
    platform = FakePlatform()
    opened = on_platform(instance, platform)

    def die(_: float) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            SparkRun(opened, SHOP, "1").run_on_platform(die)
    assert platform.request_count == 1

    def end(_: float) -> None:
        record_run(instance, platform, JobStep.STARTED, JobStep.FINISHED, JobStep.COMMITTED)
        platform.end(RunState.SUCCEEDED)

    assert SparkRun(opened, SHOP, "1").run_on_platform(end) == 7
    assert SparkRun(opened, SHOP, "1").run_on_platform(die) == 7
    (job,) = platform.runs.values()
    assert job.arguments == (
        instance.where,
        *("--adapter", "shop", "--adapter-run", "1", "--run-id", job.run_id),
    )


def test_a_task_that_dies_before_it_records_the_submission_submits_the_same_run(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = FakePlatform()
    opened = on_platform(instance, platform)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunTracker, "accept", die)
        with pytest.raises(KeyboardInterrupt):
            SparkRun(opened, SHOP, "1").run_on_platform(die)
    with pytest.raises(KeyboardInterrupt):
        SparkRun(opened, SHOP, "1").run_on_platform(die)
    assert (platform.request_count, len(platform.runs)) == (2, 1)


def test_a_run_that_fails_on_the_platform_is_recorded_and_submitted_again(
    instance: Instance,
) -> None:
    platform = FakePlatform()
    opened = on_platform(instance, platform)

    def fail(_: float) -> None:
        platform.end(RunState.FAILED, "no capacity")

    for attempt in (1, 2):
        with pytest.raises(UnavailableError, match="no capacity"):
            SparkRun(opened, SHOP, "1").run_on_platform(fail)
        assert len(platform.runs) == attempt
    job = find_job(instance, SHOP.job_id("1"))
    assert [run.state for run in job.runs] == [JobState.FAILED] * 2


def test_a_run_that_the_driver_rejects_is_not_submitted_again(instance: Instance) -> None:
    platform = FakePlatform()
    opened = on_platform(instance, platform)

    def reject(_: float) -> None:
        record_run(instance, platform, JobStep.STARTED, JobStep.REJECTED)
        platform.end(RunState.FAILED, "exit status 1")

    with pytest.raises(InvalidRequestError):
        SparkRun(opened, SHOP, "1").run_on_platform(reject)
