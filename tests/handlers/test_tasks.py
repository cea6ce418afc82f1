"""Containers' entry points as real processes, on an instance in a folder."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.api import open_instance
from sleeper.compaction.plan import compact_table
from sleeper.ingest.service import ingest_rows, submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from tests.child_processes import python_path
from tests.handlers.conftest import add_rows, make_table, write_parquet

ROOT = Path(__file__).parents[2]
# Of one job, that it takes some seconds.
ROWS = 2_000_000
WAIT_SECONDS = 120.0
# What ECS leaves a task between SIGTERM and SIGKILL.
ECS_STOP_SECONDS = 30.0


class Task:
    """A container's process."""

    def __init__(self, instance: Instance, kind: str) -> None:
        message = {"SLEEPER_INSTANCE": instance.where, "SLEEPER_TASK_KIND": kind}
        settings = {**os.environ, **message, "PYTHONPATH": python_path()}
        command = [sys.executable, str(ROOT / "containers" / "worker" / "main.py")]
        self.process = subprocess.Popen(
            command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def end(self, number: int | None = None) -> list[dict[str, Any]]:
        """Sends the signal, if any, and returns the log until the process ends."""
        if number is not None:
            self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=WAIT_SECONDS)
        return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def start(instance: Instance) -> Iterator[Callable[[str], Task]]:
    instance.change_properties({"sleeper.task.idle.stop.seconds": "1"})
    tasks: list[Task] = []

    def begin(kind: str) -> Task:
        tasks.append(Task(instance, kind))
        return tasks[-1]

    yield begin
    for task in tasks:
        task.process.kill()
        task.process.communicate()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(instance: Instance, kind: JobKind) -> bool:
    jobs = instance.jobs.tracker.recent(kind)
    return bool(jobs) and jobs[0].state is JobState.RUNNING


def keys(instance: Instance) -> pa.Array:
    """All keys of the table, in order."""
    with open_instance(instance.where) as opened_instance:
        return opened_instance.table("t").query().to_arrow()["k"].combine_chunks()


def test_an_ingest_task_runs_all_jobs_records_them_and_ends_when_idle(
    instance: Instance, start: Callable[[str], Task], tmp_path: Path
) -> None:
    make_table(instance, "t")
    for part in range(3):
        path = write_parquet(tmp_path / f"{part}.parquet", range(part * 10, part * 10 + 10))
        submit_ingest(instance, "t", [str(path)])
    instance.jobs.queue(QueueName.INGEST).send("{")
    task = start("ingest")
    log_lines = task.end()
    assert task.process.returncode == 0
    assert keys(instance).to_pylist() == list(range(30))
    (status,) = instance.jobs.tasks.recent("ingest")
    assert (status.jobs, status.rows_written, status.reason) == (4, 30, None)
    assert not status.running
    states = sorted(job.state.value for job in instance.jobs.tracker.recent(JobKind.INGEST))
    assert states == ["committed"] * 3 + ["rejected"]
    assert {line["service"] for line in log_lines} == {"ingest-task"}
    assert any("not JSON" in line["message"] for line in log_lines)


def test_a_compaction_task_runs_compactions_only(
    instance: Instance, start: Callable[[str], Task]
) -> None:
    make_table(instance, "t")
    for key in range(3):
        add_rows(instance, "t", key)
    compact_table(instance, "t", full=True)
    instance.jobs.queue(QueueName.INGEST).send("{")
    start("compaction").end()
    assert instance.jobs.queue(QueueName.INGEST).counts().visible == 1
    assert keys(instance).to_pylist() == [0, 1, 2]
    (job,) = instance.jobs.tracker.recent(JobKind.COMPACTION)
    assert job.state is JobState.COMMITTED
    (status,) = instance.jobs.tasks.recent("compaction")
    assert (status.jobs, status.rows_read) == (1, 3)


def submit_much(instance: Instance, tmp_path: Path) -> None:
    """Rows in no order, so that they must be sorted."""
    make_table(instance, "t")
    shuffled = [(i * 7_919) % ROWS for i in range(ROWS)]
    submit_ingest(instance, "t", [str(write_parquet(tmp_path / "much.parquet", shuffled))])


def create_a_big_compaction(instance: Instance, _: Path) -> None:
    make_table(instance, "t")
    half = ROWS // 2
    for start in (0, half):
        rows = pa.table({"k": range(start, start + half), "v": ["v"] * half})
        ingest_rows(instance, "t", rows.to_batches(10_000))
    compact_table(instance, "t", full=True)


WORK = {
    JobKind.INGEST: (QueueName.INGEST, submit_much),
    JobKind.COMPACTION: (QueueName.COMPACTION, create_a_big_compaction),
}


@pytest.mark.parametrize("kind", WORK)
def test_a_stopped_task_returns_its_job_and_the_next_task_runs_it(
    instance: Instance, start: Callable[[str], Task], tmp_path: Path, kind: JobKind
) -> None:
    name, submit = WORK[kind]
    submit(instance, tmp_path)
    task = start(kind.value)
    wait_until(lambda: is_running(instance, kind))
    start_time = time.monotonic()
    task.end(signal.SIGTERM)
    assert time.monotonic() - start_time < ECS_STOP_SECONDS
    counts = instance.jobs.queue(name).counts()
    assert (counts.visible, counts.in_flight) == (1, 0)
    (status,) = instance.jobs.tasks.recent(kind.value)
    assert not status.running
    assert "interrupted" in str(status.reason)
    assert_the_next_one_runs_it(instance, start, kind)


@pytest.mark.parametrize("kind", WORK)
def test_the_job_of_a_task_that_is_killed_is_run_by_the_next_one(
    instance: Instance, start: Callable[[str], Task], tmp_path: Path, kind: JobKind
) -> None:
    name, submit = WORK[kind]
    submit(instance, tmp_path)
    task = start(kind.value)
    wait_until(lambda: is_running(instance, kind))
    task.end(signal.SIGKILL)
    assert instance.jobs.queue(name).counts().in_flight == 1
    # In AWS the message's visibility timeout ends.
    assert instance.background.recover() == 1
    assert_the_next_one_runs_it(instance, start, kind)


def assert_the_next_one_runs_it(
    instance: Instance, start: Callable[[str], Task], kind: JobKind
) -> None:
    task = start(kind.value)
    task.end()
    assert task.process.returncode == 0
    assert instance.jobs.queue(WORK[kind][0]).counts().unfinished == 0
    assert instance.jobs.tracker.recent(kind)[0].state is JobState.COMMITTED
    assert keys(instance).equals(pa.array(range(ROWS), pa.int64()))


def test_an_idle_task_ends_on_sigterm_and_receives_no_message(
    instance: Instance, start: Callable[[str], Task]
) -> None:
    instance.change_properties({"sleeper.task.idle.stop.seconds": "600"})
    task = start("ingest")
    wait_until(lambda: instance.jobs.tasks.recent("ingest"))
    start_time = time.monotonic()
    task.end(signal.SIGTERM)
    assert task.process.returncode == 0
    assert time.monotonic() - start_time < ECS_STOP_SECONDS
    (status,) = instance.jobs.tasks.recent("ingest")
    assert (status.running, status.jobs) == (False, 0)


STUCK = """
import sqlite3, sys, threading
from sleeper.ingest import service
from sleeper.jobs.event import new_task_id
from sleeper.workers import worker
from sleeper.opening import open_instance
def stuck(*_):
    threading.Timer(0.5, lambda: print("at work", flush=True)).start()
    # In native code for a minute and more, without a look at signals.
    sqlite3.connect(":memory:").execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000000)"
        " SELECT count(*) FROM n"
    ).fetchall()
service.run_ingest_message = stuck
worker._STOP_SECONDS_MAX = 0.5
instance = open_instance(sys.argv[1])
worker.run_worker_process(worker.Worker(instance, new_task_id(), threading.Event()))
"""


def test_a_job_that_ignores_interruption_is_returned_to_its_queue(instance: Instance) -> None:
    instance.jobs.queue(QueueName.INGEST).send("{}")
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, instance.where], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=ECS_STOP_SECONDS)
    finally:
        process.kill()
    counts = instance.jobs.queue(QueueName.INGEST).counts()
    assert (counts.visible, counts.in_flight) == (1, 0)
    (status,) = instance.jobs.tasks.recent("worker")
    assert (status.running, status.jobs) == (False, 0)
    assert "exited during a job" in str(status.reason)


def test_a_task_runs_an_export(instance: Instance, start: Callable[[str], Task]) -> None:
    table = make_table(instance, "t")
    add_rows(instance, "t", 1, 2, 3)
    queue = instance.jobs.queue(QueueName.BULK_EXPORT)
    queue.send('{"exportId":"e1","tableName":"t"}')
    queue.send('{"exportId":"e2","tableName":"gone"}')
    start("bulk_export").end()
    assert queue.counts().unfinished == 0
    assert instance.jobs.tracker.job(table.id, "e1").state is JobState.COMMITTED
    (lost,) = (j for j in instance.jobs.tracker.recent(JobKind.BULK_EXPORT) if j.job_id == "e2")
    assert lost.state is JobState.REJECTED
    files = list((Path(instance.where) / "exports" / table.id / "e1").glob("*.parquet"))
    assert len(files) == 1
