"""Files sent to the batcher become ingest jobs, despite duplicates and crashes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sleeper.errors import UnavailableError
from sleeper.ingest_batcher.service import submit_to_batcher
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.ingest_job import INGEST_JOBS
from sleeper.jobs.queue import MESSAGE_BYTES_MAX, Message, QueueName
from sleeper.jobs.status import JobState
from sleeper.local.file_requests import LocalFileRequests
from sleeper.workers import lambda_function
from tests.handlers import functions
from tests.handlers.conftest import (
    Lambda,
    batch_of,
    failed,
    make_table,
    messages_of,
    write_parquet,
)
from tests.ports import with_ports


@pytest.fixture(autouse=True)
def table(instance: Instance) -> None:
    make_table(instance, "t", ingest_batcher_job_min_size="0", ingest_batcher_job_min_files="2")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    one, two = (str(write_parquet(tmp_path / f"{n}.parquet", [n])) for n in (1, 2))
    return one, two


def submission(*files: str, **members: Any) -> str:
    return json.dumps({"tableName": "t", "files": list(files)} | members)


def receive(aws: Lambda, messages: Sequence[Message]) -> list[str]:
    bodies = [replace(message, sent_ms=aws.instance.clock()) for message in messages]
    return failed(aws.call(functions.receive_batch_files, batch_of(bodies)))


def create(aws: Lambda) -> dict[str, int]:
    made: dict[str, int] = aws.call(functions.create_ingest_batches)
    return made


def jobs_sent(instance: Instance) -> list[tuple[str, tuple[str, ...]]]:
    messages = instance.jobs.queue(QueueName.INGEST).receive(10)
    jobs = (INGEST_JOBS.parse(m.body, m.message_id) for m in messages)
    return [(job.id, job.files) for job in jobs]


def test_a_submission_that_is_sent_again_is_received_once(
    aws: Lambda, files: tuple[str, str]
) -> None:
    bodies: list[str] = []
    queue = SimpleNamespace(send=bodies.append)
    queues = {"queues": (QueueName.INGEST_BATCHER,), "queue": lambda _name: queue}
    submit_to_batcher(with_ports(aws.instance, jobs=queues), "t", files)
    first, again = messages_of(*bodies, *bodies)
    assert first.message_id != again.message_id
    assert receive(aws, [first, again]) == []
    waiting = aws.instance.jobs.file_requests().waiting(aws.instance.table("t").ref.id)
    assert sorted(each.path for each in waiting) == sorted(files)


def test_files_of_several_messages_become_one_job(aws: Lambda, files: tuple[str, str]) -> None:
    one, two = files
    assert receive(aws, messages_of(submission(one))) == []
    assert create(aws) == {"jobs": 0, "problems": 0}
    (second,) = messages_of(submission(two))
    assert receive(aws, [replace(second, message_id="other")]) == []
    assert create(aws) == {"jobs": 1, "problems": 0}
    ((job_id, file_count),) = jobs_sent(aws.instance)
    assert set(file_count) == {one, two}
    (job,) = aws.instance.jobs.tracker.recent(JobKind.INGEST)
    assert (job.job_id, job.inputs) == (job_id, 2)


def test_a_redelivered_message_adds_no_files_before_or_after_its_job(
    aws: Lambda, files: tuple[str, str]
) -> None:
    messages = messages_of(submission(*files))
    for _ in range(3):
        assert receive(aws, [*messages, *messages]) == []
    assert create(aws)["jobs"] == 1
    assert receive(aws, messages) == []
    assert create(aws)["jobs"] == 0
    assert len(jobs_sent(aws.instance)) == 1


def test_a_function_that_died_after_sending_sends_the_same_job_again(
    aws: Lambda, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(aws, messages_of(submission(*files)))

    def dies(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileRequests, "mark_sent", dies)
        with pytest.raises(SystemExit):
            create(aws)
    assert create(aws)["jobs"] == 1
    first, second = jobs_sent(aws.instance)
    assert first == second
    assert create(aws)["jobs"] == 0


NEVER = {
    "": "not JSON",
    "[" * 100_000: "not JSON",
    "[]": "expected an object",
    '{"tableName":"t"}': '"files"',
    '{"files":["a.parquet"]}': '"tableName" or "tableId" is missing',
    submission("a\0.parquet"): '"files[0]" is',
    submission("a.parquet", tableName="t\0"): '"tableName" is',
    submission("a.parquet", tableName="unknown"): "'unknown'",
    submission("a.parquet", tableName="unknown" * 10_000): "unknownunknown",
    submission("a.parquet", tableName=None, tableId="0a1b2c3d"): "0a1b2c3d",
    submission("/nowhere.parquet"): "/nowhere.parquet does not exist",
    submission("x" * MESSAGE_BYTES_MAX): "expected at most 1,048,576",
}


@pytest.mark.parametrize(("body", "reason"), NEVER.items(), ids=lambda text: text[:50])
def test_an_invalid_request_is_rejected_and_other_files_are_kept(
    aws: Lambda, files: tuple[str, str], body: str, reason: str
) -> None:
    assert receive(aws, messages_of(submission(files[0]), body, submission(files[1]))) == []
    (job,) = aws.instance.jobs.tracker.recent(JobKind.INGEST)
    assert (job.job_id, job.state) == ("m1", JobState.REJECTED)
    assert reason in job.reasons[0]
    assert len(job.reasons[0]) <= 2_000
    assert create(aws)["jobs"] == 1


def test_a_message_that_cannot_be_stored_returns_to_the_queue(
    aws: Lambda, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: Any) -> None:
        raise UnavailableError("no answer")

    messages = messages_of(submission(*files))
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileRequests, "add", no_answer)
        assert receive(aws, messages) == ["m0"]
    assert aws.instance.jobs.tracker.recent() == ()
    assert receive(aws, messages) == []
    assert create(aws)["jobs"] == 1


def test_a_failing_table_is_reported_and_does_not_block_others(
    aws: Lambda, files: tuple[str, str]
) -> None:
    broken = make_table(aws.instance, "broken")
    receive(aws, messages_of(submission(*files, tableName="broken")))
    path = Path(aws.instance.where) / "tables" / f"table-{broken.id}.properties"
    path.write_text("sleeper.table.nonsense=1")
    receive(aws, messages_of(submission(*files)))
    assert create(aws) == {"jobs": 1, "problems": 1}


def test_a_failed_message_is_visible_before_its_timeout_expires(
    aws: Lambda, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values: list[float] = []

    class Queue:
        def release(self, receipt: str, delay_seconds: float) -> None:
            assert receipt == "receipt 0"
            values.append(delay_seconds)
            raise UnavailableError("no answer")  # then it returns by itself

    def no_answer(*_: Any) -> None:
        raise UnavailableError("no answer")

    instance_with_queue = with_ports(aws.instance, jobs={"queue": lambda _: Queue()})
    monkeypatch.setattr(lambda_function, "_opened", lambda where: instance_with_queue)
    monkeypatch.setattr(LocalFileRequests, "add", no_answer)
    messages = messages_of(submission(*files), "no JSON")
    for receives in (1, 2, 3, 9):
        assert receive(aws, [replace(message, receives=receives) for message in messages]) == ["m0"]
    assert values == [60, 600, 600, 600]
