"""Invalid or impossible ingest jobs are rejected with a reason and do not affect others."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.ingest.service import submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import MESSAGE_BYTES_MAX, QueueName
from sleeper.jobs.status import JobState
from sleeper.workers.worker import Worker, WorkerSettings
from tests.handlers.conftest import make_table, write_parquet

INGEST = WorkerSettings("ingest", (QueueName.INGEST,))


def message(**members: Any) -> str:
    return json.dumps({"id": "j", "tableName": "t", "files": ["/nowhere.parquet"]} | members)


NO_JOBS = {
    "": "not JSON",
    "{": "not JSON",
    "[" * 100_000: "not JSON",
    "[]": "expected an object",
    '{"tableName":"t"}': '"files"',
    '{"tableName":"t","files":{}}': '"files"',
    '{"tableName":"t","files":[[1]]}': '"files[0]" is [1] (expected text)',
    '{"files":["a.parquet"]}': '"tableName" or "tableId" is missing',
    message(id={}): '"id" is {} (expected text)',
    message(id="j" * 501): "(expected at most 500 bytes)",
    message(id="\ud800"): '"id" is',
    message(tableName="t\0"): '"tableName" is',
    message(files=["a\0.parquet"]): '"files[0]" is',
    message(files=["x" * MESSAGE_BYTES_MAX]): "expected at most 1,048,576",
}
HOPELESS = {
    message(): "/nowhere.parquet does not exist",
    message(files=["/nowhere/"]): "does not exist",
    message(tableName="unknown"): "'unknown'",
    message(tableName="unknown" * 10_000): "unknownunknown",
    message(tableName=None, tableId="0a1b2c3d"): "0a1b2c3d",
    message(tableName=None, tableId="é" * 5_000): "no table has id",
}


@pytest.mark.parametrize(
    ("body", "reason"), [*NO_JOBS.items(), *HOPELESS.items()], ids=lambda text: text[:50]
)
def test_a_bad_message_is_rejected_and_other_messages_are_processed(
    instance: Instance, tmp_path: Path, body: str, reason: str
) -> None:
    ref = make_table(instance, "t")
    good = [submit_ingest(instance, "t", [str(write_parquet(tmp_path / "a.parquet", [1]))])]
    message_id = instance.jobs.queue(QueueName.INGEST).send(body)
    good += [submit_ingest(instance, "t", [str(write_parquet(tmp_path / "b.parquet", [2]))])]
    worker = Worker(instance, new_task_id(), threading.Event(), INGEST)
    assert [worker.run_one() for _ in range(4)] == [True, True, True, False]
    assert instance.jobs.queue(QueueName.INGEST).counts().unfinished == 0
    jobs = {job.job_id: job for job in instance.jobs.tracker.recent(JobKind.INGEST)}
    bad = jobs["j" if body in HOPELESS else message_id]
    assert bad.state is JobState.REJECTED
    assert reason in bad.reasons[0]
    assert len(bad.reasons[0]) <= 2_000
    assert {jobs[job_id].state for job_id in good} == {JobState.COMMITTED}
    with instance.tables.state(ref.id).reading() as state:
        assert state.files.totals().rows == 2


def test_a_job_of_no_files_is_tracked_as_committed(instance: Instance) -> None:
    make_table(instance, "t")
    instance.jobs.queue(QueueName.INGEST).send('{"id":"none","tableName":"t","files":[]}')
    assert Worker(instance, new_task_id(), threading.Event(), INGEST).run_one()
    (job,) = instance.jobs.tracker.recent(JobKind.INGEST)
    assert (job.job_id, job.state) == ("none", JobState.COMMITTED)


def test_a_job_too_large_for_a_message_is_refused_when_it_is_submitted(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance, "t")
    path = write_parquet(tmp_path / "a.parquet", [1])
    with pytest.raises(InvalidRequestError, match=r"ingest message has .*expected at most"):
        submit_ingest(instance, "t", [str(path)] * 40_000)
    assert instance.jobs.queue(QueueName.INGEST).counts().unfinished == 0
    assert instance.jobs.tracker.recent(JobKind.INGEST) == ()


def test_trackers_keep_a_rejection_for_a_week_at_least(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match=r"sleeper\.tracker\.days"):
        instance.change_properties({"sleeper.tracker.days": "6"})


def test_an_error_caused_by_an_interruption_does_not_fail_the_job(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.jobs.queue(QueueName.INGEST).send("{}")
    worker = Worker(instance, new_task_id(), threading.Event(), INGEST)

    def interrupted(*_: Any) -> None:
        try:
            worker.interrupt()
        except BaseException as error:
            raise InvalidRequestError("error of native code") from error

    monkeypatch.setattr("sleeper.ingest.service.run_ingest_message", interrupted)
    worker.run()
    counts = instance.jobs.queue(QueueName.INGEST).counts()
    assert (counts.visible, counts.in_flight) == (1, 0)
