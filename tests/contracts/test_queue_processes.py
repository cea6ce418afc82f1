"""Tests of killed and competing processes on a local instance's queues."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.process import is_alive, this_process
from sleeper.jobs.queue import QueueSettings
from sleeper.jobs.status import JobState
from sleeper.local.folder import InstanceFolder
from sleeper.local.queue import LocalQueue, release_dead_receivers
from sleeper.local.trackers import LocalJobTracker, LocalTaskTracker, record_dead_tasks
from sleeper.tables import TableId
from tests.child_processes import python_path

SETTINGS = QueueSettings(visibility_timeout_seconds=3600, receives_max=2)
TABLE = TableId("0000000a")
PRELUDE = """
import json, sys, time
from pathlib import Path
from sleeper.jobs.event import *
from sleeper.jobs.queue import QueueSettings
from sleeper.local.folder import open_instance_folder
from sleeper.jobs.process import this_process
from sleeper.local.queue import LocalQueue
from sleeper.local.trackers import LocalJobTracker, LocalTaskTracker
instance = open_instance_folder(Path(sys.argv[1]))
queue = LocalQueue(instance.database, "jobs", QueueSettings(3600, 2))
"""
HOLD = "print([m.body for m in queue.receive(2)], flush=True); time.sleep(600)"
DRAIN = """
received = []
print("ready", flush=True)
sys.stdin.readline()
while messages := queue.receive(3, wait_seconds=1):
    received += [m.body for m in messages]
    time.sleep(0.005)
    for m in messages:
        queue.delete(m.receipt)
print(json.dumps(received), flush=True)
"""
SEND = """
for i in range(10_000):
    queue.send(f"{sys.argv[2]}-{i}")
    print(i, flush=True)
"""
RUN = """
LocalTaskTracker(instance.database).record(
    TaskEvent("t1", "ingest", TaskStep.STARTED, 1, process=this_process()))
job = dict(table_id="0000000a", kind=JobKind.INGEST, task_id="t1", run_id="r1")
jobs = LocalJobTracker(instance.database)
jobs.record(JobEvent(job_id="done", step=JobStep.STARTED, at_ms=2, **job),
            JobEvent(job_id="done", step=JobStep.COMMITTED, at_ms=3, **job),
            JobEvent(job_id="open", step=JobStep.STARTED, at_ms=4, **job))
print("running", flush=True)
time.sleep(600)
"""


@contextmanager
def process(
    instance: InstanceFolder, code: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(instance.folder), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path(*sys.path)},
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.fixture
def queue(instance: InstanceFolder) -> LocalQueue:
    return LocalQueue(instance.database, "jobs", SETTINGS)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_messages_of_a_killed_process_return_at_once(
    instance: InstanceFolder, queue: LocalQueue
) -> None:
    for body in ("a", "b", "c"):
        queue.send(body)
    (mine,) = queue.receive(1)
    with process(instance, HOLD) as holder:
        assert read_line(holder) == "['b', 'c']"
        assert release_dead_receivers(instance.database) == 0
        holder.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        # Not reaped yet, so its id is still in use.
        assert release_dead_receivers(instance.database) == 2
    assert [(m.body, m.receives) for m in queue.receive(10)] == [("b", 2), ("c", 2)]
    assert release_dead_receivers(instance.database) == 0
    queue.delete(mine.receipt)


def test_a_message_that_kills_its_receivers_is_a_dead_letter(
    instance: InstanceFolder, queue: LocalQueue
) -> None:
    queue.send("poison")
    for _ in range(2):
        with process(instance, HOLD) as holder:
            assert read_line(holder) == "['poison']"
            holder.send_signal(signal.SIGKILL)
        assert release_dead_receivers(instance.database) == 1
    assert queue.receive(10) == ()
    assert queue.counts().dead == 1


def test_two_processes_never_receive_the_same_message(
    instance: InstanceFolder, queue: LocalQueue
) -> None:
    messages = [f"{i}" for i in range(120)]
    for body in messages:
        queue.send(body)
    with process(instance, DRAIN) as one, process(instance, DRAIN) as two:
        for entry in (one, two):
            assert read_line(entry) == "ready"
        for entry in (one, two):
            assert entry.stdin is not None
            entry.stdin.write("\n")
            entry.stdin.flush()
        responses = [json.loads(read_line(item)) for item in (one, two)]
    assert all(responses), "one process received everything, so nothing was tried"
    assert sorted(responses[0] + responses[1]) == sorted(messages)
    assert queue.counts().unfinished == 0


def test_a_killed_sender_s_acknowledged_messages_are_kept(
    instance: InstanceFolder, queue: LocalQueue
) -> None:
    with process(instance, SEND, "x") as sender:
        while int(read_line(sender)) < 20:
            pass
        sender.send_signal(signal.SIGKILL)
        assert sender.stdout is not None
        acknowledged = max([20, *(int(line) for line in sender.stdout.read().split())])
    assert queue.counts().visible in {acknowledged + 1, acknowledged + 2}
    queue.send("and it goes on")


def test_runs_of_a_killed_task_are_found_and_failed(instance: InstanceFolder) -> None:
    jobs, tasks = LocalJobTracker(instance.database), LocalTaskTracker(instance.database)
    tasks.record(TaskEvent("mine", "ingest", TaskStep.STARTED, 1, process=this_process()))
    with process(instance, RUN) as runner:
        assert read_line(runner) == "running"
        assert record_dead_tasks(instance.database) == ()
        tasks.record(TaskEvent("t1", "ingest", TaskStep.HEARTBEAT, 3))
        runner.send_signal(signal.SIGKILL)
    (result,) = record_dead_tasks(instance.database)
    assert (result.job_id, result.run_id, result.task_id) == ("open", "r1", "t1")
    failed = jobs.job(TABLE, "open")
    assert failed.state is JobState.FAILED
    assert failed.reasons == (f"process {runner.pid} of the task died",)
    # Nobody saw the end, so it is that of the last heartbeat, or the start of the run.
    assert (tasks.task("t1").ended_ms, failed.runs[0].ended_ms) == (3, 4)
    assert jobs.job(TABLE, "done").state is JobState.COMMITTED
    assert not tasks.task("t1").running
    assert tasks.task("mine").running
    assert record_dead_tasks(instance.database) == ()
    late = JobEvent(TABLE, "open", JobKind.INGEST, JobStep.COMMITTED, 9, run_id="r1")
    jobs.record(late)
    assert jobs.job(TABLE, "open").state is JobState.COMMITTED


def test_a_reused_process_id_is_another_process() -> None:
    pid, _, start_time = this_process().partition("@")
    start, _, place = start_time.partition("-")
    boot, _, namespace = place.partition("-")
    assert is_alive(f"{pid}@{start}-{place}")
    assert not is_alive(f"{pid}@{int(start) - 1}-{place}")
    assert not is_alive(f"{pid}@{start}-00000000-{namespace}")
    assert not is_alive("nonsense")
    # A process of another container is invisible, so it is not reported dead.
    assert is_alive(f"{pid}@{int(start) - 1}-{boot}-1")


def test_setting_the_clock_does_not_mark_a_process_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = this_process()
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: 0.0)
    assert is_alive(name)


def test_processes_are_distinguished_by_start_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sleeper.jobs.process._PROC", tmp_path)
    pid = os.getpid()
    started_ms = int(psutil.Process(pid).create_time() * 1000)
    assert is_alive(f"{pid}@{started_ms}")
    assert not is_alive(f"{pid}@{started_ms - 60_000}")
