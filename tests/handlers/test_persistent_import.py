"""The process on the persistent cluster's main node, with a spark-submit that is a script."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState, JobStatus
from sleeper.properties.deployed import EMR_IMAGE, EMR_MAIN_FILE
from sleeper.tables import TableRef
from tests.handlers.conftest import make_table

QUEUE = QueueName.BULK_IMPORT_PERSISTENT_EMR
WAIT_SECONDS = 60.0
MAIN_FILE = "s3://assets/0123.py"
# Records its arguments, waits for a file, and exits with the status in it.
SUBMIT = """
import json, os, signal, sys, time
folder = {folder!r}
name = next(a for a in sys.argv if a.startswith("sleeper-"))
signal.signal(signal.SIGTERM, lambda *_: (open(f"{{folder}}/{{name}}.ended", "w"), sys.exit(143)))
with open(f"{{folder}}/{{name}}.part", "w") as told:
    json.dump(sys.argv[1:], told)
os.rename(f"{{folder}}/{{name}}.part", f"{{folder}}/{{name}}.told")
while not os.path.exists(f"{{folder}}/status"):
    time.sleep(0.02)
status = int(open(f"{{folder}}/status").read())
sys.stderr.write("driver said why\\n")
sys.exit(status)
"""


class Submitter:
    """The submission script in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "submit.py"
        program.write_text(SUBMIT.format(folder=str(folder)))
        script = folder / "spark-submit"
        command = shlex.join([sys.executable, str(program)])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)

    def read_calls(self) -> list[list[str]]:
        return [json.loads(path.read_text()) for path in self.folder.glob("*.told")]

    def ended(self) -> int:
        return len(list(self.folder.glob("*.ended")))

    def let_end(self, status: int) -> None:
        part = self.folder / "status.part"
        part.write_text(str(status))
        part.rename(self.folder / "status")


@pytest.fixture
def table(instance: Instance) -> TableRef:
    instance.change_properties({EMR_IMAGE.name: "registry/image:1", EMR_MAIN_FILE.name: MAIN_FILE})
    return make_table(instance, "t")


@pytest.fixture
def submitter(tmp_path: Path) -> Submitter:
    return Submitter(tmp_path / "bin")


Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(instance: Instance, submitter: Submitter) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def begin() -> "subprocess.Popen[str]":
        path = f"{submitter.folder}:/usr/bin:/bin"
        settings = {**os.environ, "PATH": path, "SLEEPER_INSTANCE": instance.where}
        command = [sys.executable, "-m", "sleeper.workers.task"]
        process = subprocess.Popen(
            command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def send(instance: Instance, **members: Any) -> None:
    body = {"id": "j", "tableName": "t", "files": ["bucket/dir"]} | members
    instance.jobs.queue(QUEUE).send(json.dumps(body))


def job(instance: Instance, table: TableRef, job_id: str = "j") -> JobStatus:
    return instance.jobs.tracker.job(table.id, job_id)


def stop(process: "subprocess.Popen[str]") -> str:
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=WAIT_SECONDS)
    return output


def test_jobs_are_submitted_one_after_another(
    instance: Instance, table: TableRef, submitter: Submitter, start: Start
) -> None:
    send(instance, id="one", sparkConf={"spark.executor.cores": "3"})
    send(instance, id="two")
    process = start()
    wait_until(submitter.read_calls)
    time.sleep(0.3)
    (message,) = submitter.read_calls()
    assert message[:4] == ["--master", "yarn", "--deploy-mode", "cluster"]
    assert "spark.executor.cores=3" in message
    assert MAIN_FILE in message
    counts = instance.jobs.queue(QUEUE).counts()
    assert (counts.visible, counts.in_flight) == (1, 1)
    assert job(instance, table, "one").state is JobState.ACCEPTED
    submitter.let_end(1)
    wait_until(lambda: instance.jobs.queue(QUEUE).counts().unfinished == 0)
    assert len(submitter.read_calls()) == 2
    for job_id in ("one", "two"):
        job_status = job(instance, table, job_id)
        assert job_status.state is JobState.FAILED
        assert "exit status 1: driver said why" in job_status.reasons[0]
    stop(process)


def test_a_stopped_worker_ends_the_driver_and_returns_the_message(
    instance: Instance, table: TableRef, submitter: Submitter, start: Start
) -> None:
    send(instance)
    process = start()
    wait_until(submitter.read_calls)
    stop(process)
    assert process.returncode == 0
    assert submitter.ended() == 1
    assert instance.jobs.queue(QUEUE).counts().visible == 1
    # The next one submits it again, as another run.
    process = start()
    wait_until(lambda: len(submitter.read_calls()) == 2)
    submitter.let_end(1)
    wait_until(lambda: instance.jobs.queue(QUEUE).counts().unfinished == 0)
    assert len(job(instance, table).runs) == 2
    stop(process)


def test_an_invalid_message_is_rejected_and_the_next_is_processed(
    instance: Instance, table: TableRef, submitter: Submitter, start: Start
) -> None:
    send(instance, id="bad", sparkConf={"spark.jars": "x"})
    send(instance, id="lost", tableName="gone")
    send(instance)
    submitter.let_end(1)
    process = start()
    wait_until(lambda: instance.jobs.queue(QUEUE).counts().unfinished == 0)
    states = {
        result.job_id: result.state for result in instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    }
    assert states == {
        "bad": JobState.REJECTED,
        "lost": JobState.REJECTED,
        "j": JobState.FAILED,
    }
    stop(process)


def test_a_missing_spark_submit_keeps_the_message(
    instance: Instance, table: TableRef, submitter: Submitter, start: Start
) -> None:
    (submitter.folder / "spark-submit").unlink()
    send(instance)
    process = start()
    queue = instance.jobs.queue(QUEUE)
    wait_until(lambda: len(job_runs(instance)) > 0 and queue.counts().in_flight == 0)
    assert "cannot run spark-submit" in stop(process)
    assert instance.jobs.queue(QUEUE).counts().unfinished == 1


def job_runs(instance: Instance) -> tuple[JobStatus, ...]:
    return instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
