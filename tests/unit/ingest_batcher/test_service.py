"""Files handed to the batcher of a local instance become ingest jobs."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sleeper.admin.tables import create_table, delete_table
from sleeper.aws.instance import body_rewriter
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.ingest_batcher.service import (
    create_all_ingest_batches,
    create_ingest_batches,
    receive_batch_message,
    submit_to_batcher,
)
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.file_requests import FileRequests
from sleeper.jobs.ingest_job import INGEST_JOBS
from sleeper.jobs.queue import Message, QueueName
from sleeper.jobs.status import JobState
from sleeper.opening import create_instance, open_instance
from sleeper.properties.table import BATCHER_JOB_FILES_MIN, BATCHER_JOB_SIZE_MIN
from sleeper.reports.output import ReportKind
from sleeper.reports.service import report
from tests.ports import with_ports

SCHEMA = '{"rowKeyFields":[{"name":"id","type":"StringType"}]}'
AT_ONCE = {BATCHER_JOB_SIZE_MIN.name: "0", BATCHER_JOB_FILES_MIN.name: "1"}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "instance", "test")
    opened_instance = open_instance(tmp_path / "instance")
    create_table(opened_instance, "t", SCHEMA, AT_ONCE)
    yield opened_instance
    opened_instance.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.csv"
    path.write_text("id\na\n")
    return path


def message(body: str, message_id: str = "m1") -> Message:
    return Message(message_id, body, "receipt", 1, 1_000)


def jobs_sent(instance: Instance) -> list[tuple[str, ...]]:
    messages = instance.jobs.queue(QueueName.INGEST).receive(messages_max=10)
    return [INGEST_JOBS.parse(m.body, m.message_id).files for m in messages]


def test_a_redelivered_message_creates_one_job(instance: Instance, file: Path) -> None:
    body = f'{{"tableName":"t","files":["{file}"]}}'
    assert receive_batch_message(instance, message(body)) == 1
    assert receive_batch_message(instance, message(body)) == 1
    ref = instance.tables.index.find("t")
    assert len(create_ingest_batches(instance, ref)) == 1
    receive_batch_message(instance, message(body))
    assert create_ingest_batches(instance, ref) == []
    assert jobs_sent(instance) == [(str(file),)]
    (job,) = instance.jobs.tracker.recent(JobKind.INGEST)
    assert job.inputs == 1


def test_a_redriven_message_adds_no_file_again(instance: Instance, file: Path) -> None:
    body = f'{{"tableName":"t","files":["{file}"]}}'
    receive_batch_message(instance, message(body, "m1"))
    assert create_all_ingest_batches(instance) == (1, ())
    redriven = body_rewriter(QueueName.INGEST_BATCHER)
    for previous, current in pairwise(("m1", "m2", "m3")):
        # Each redrive gives the message another id.
        body = redriven(body, previous, "sender")
        receive_batch_message(instance, message(body, current))
    assert create_all_ingest_batches(instance) == (0, ())


@pytest.mark.parametrize(
    ("queue", "member"),
    [
        (QueueName.INGEST, "id"),
        (QueueName.BULK_IMPORT_EKS, "id"),
        (QueueName.BULK_EXPORT, "exportId"),
        (QueueName.QUERY, "queryId"),
        (QueueName.INGEST_BATCHER, "firstMessageId"),
        (QueueName.DELETION, "id"),
    ],
)
def test_a_redriven_message_keeps_the_id_of_its_first_sending(
    queue: QueueName, member: str
) -> None:
    redriven = body_rewriter(queue)
    once = redriven('{"type":"Query","tableName":"t"}', "m1", "sender")
    assert json.loads(redriven(once, "m2", "sender"))[member] == "m1"


def test_an_id_that_is_too_long_for_a_key_is_rejected(instance: Instance, file: Path) -> None:
    body = json.dumps({"tableName": "t", "files": [str(file)], "firstMessageId": "i" * 1000})
    with pytest.raises(
        InvalidRequestError, match=r'"firstMessageId" is .* \(expected at most 500 bytes\)'
    ):
        receive_batch_message(instance, message(body))


def test_a_directory_is_the_files_in_it(instance: Instance, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("b.csv", "a.csv", "c.txt"):
        (folder / name).write_text("id\n")
    assert submit_to_batcher(instance, "t", [str(folder)]) == 2
    create_all_ingest_batches(instance)
    (files,) = jobs_sent(instance)
    assert set(files) == {str(folder / "a.csv"), str(folder / "b.csv")}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("no JSON", "not JSON"),
        ('{"tableName":"other","files":["a.csv"]}', "no table is named 'other'"),
        ('{"tableName":"t","files":["/is/not/there.csv"]}', "there.csv does not exist"),
        ("[" * 100_000, "not JSON"),
        ('{"tableName":"\\ud800","files":["a.csv"]}', '"tableName" is'),
        ('{"tableId":"\\u0000","files":["a.csv"]}', '"tableId" is'),
        ('{"tableName":"t","files":["a\\udfff.csv"]}', '"files[0]" is'),
    ],
)
def test_an_invalid_message_is_recorded_as_rejected(
    instance: Instance, body: str, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(reason)):
        receive_batch_message(instance, message(body))
    (job,) = instance.jobs.tracker.recent()
    assert job.job_id == "m1"
    assert reason in str(job)
    assert create_all_ingest_batches(instance) == (0, ())


def test_a_failing_table_does_not_affect_others(
    instance: Instance, file: Path, tmp_path: Path
) -> None:
    broken_table = create_table(instance, "broken", SCHEMA)
    for name in ("broken", "t"):
        submit_to_batcher(instance, name, [str(file)])
    path = tmp_path / "instance" / "tables" / f"table-{broken_table.id}.properties"
    path.write_text("sleeper.table.nonsense=1")
    batches, problems = create_all_ingest_batches(instance)
    assert batches == 1
    (problem,) = problems
    assert problem.startswith("table broken: ")
    assert "sleeper.table.nonsense" in problem


def test_files_that_wait_for_a_deleted_table_are_rejected_with_their_reason(
    instance: Instance, tmp_path: Path
) -> None:
    files = []
    for number in range(7):
        files.append(tmp_path / f"{number}.csv")
        files[-1].write_text("id\na\n")
    create_table(instance, "soon gone", SCHEMA)
    removed_paths = create_table(instance, "gone", SCHEMA)
    names = [str(path) for path in files]
    receive_batch_message(instance, message(json.dumps({"tableName": "soon gone", "files": names})))
    receive_batch_message(
        instance, message(json.dumps({"tableId": removed_paths.id, "files": names[:1]}), "m-2")
    )
    submit_to_batcher(instance, "t", names[:1])
    for name in ("soon gone", "gone"):
        delete_table(instance, name)
    instance.tables.delete(removed_paths.id)
    instance.tables.index.remove(removed_paths.id)

    assert create_all_ingest_batches(instance) == (1, ())
    rejected_jobs = {job.job_id: job for job in instance.jobs.tracker.recent() if job.reasons}
    assert {job.state for job in rejected_jobs.values()} == {JobState.REJECTED}
    reasons = {job_id: job.reasons[0] for job_id, job in rejected_jobs.items()}
    assert reasons["m-2"] == (
        f"table {removed_paths.id} was deleted before the ingest batcher sent {names[0]}"
    )
    deleted_reason, sent_reason = (
        "table soon gone was deleted before the ingest batcher sent ",
        reasons["m1"],
    )
    assert sent_reason.startswith(deleted_reason)
    assert sent_reason.endswith(" and 2 more")
    assert (
        len(set(sent_reason.removeprefix(deleted_reason).removesuffix(" and 2 more").split(", ")))
        == 5
    )
    assert set(reasons) == {"m1", "m-2"}
    assert instance.jobs.file_requests().tables() == ()
    assert create_all_ingest_batches(instance) == (0, ())


def test_files_assigned_to_a_job_of_a_deleted_table_are_rejected_once(
    instance: Instance, file: Path
) -> None:
    table = create_table(instance, "gone", SCHEMA)
    submit_to_batcher(instance, "gone", [str(file)])
    requests = instance.jobs.file_requests()
    requests.assign("the job", requests.waiting(table.id))
    delete_table(instance, "gone")

    def dies(_: object) -> None:
        raise UnavailableError("no answer")

    crashing_instance = with_ports(
        instance, jobs={"file_requests": lambda: _DiscardingStore(requests, dies)}
    )
    assert create_all_ingest_batches(crashing_instance) == (0, ("table gone: no answer",))
    assert create_all_ingest_batches(instance) == (0, ())
    (job,) = instance.jobs.tracker.recent()
    assert (job.job_id, job.state, len(job.runs)) == ("the job", JobState.REJECTED, 1)


class _DiscardingStore:
    """File requests with another way of discarding them."""

    def __init__(self, inner: FileRequests, discard: Callable[[object], None]) -> None:
        self._inner = inner
        self.discard = discard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_an_unknown_table_is_tracked_under_its_truncated_name(
    instance: Instance,
) -> None:
    with pytest.raises(InvalidRequestError, match="no table is named"):
        receive_batch_message(
            instance, message(json.dumps({"tableName": "x" * 9000, "files": ["a"]}))
        )
    (job,) = instance.jobs.tracker.recent()
    assert job.table_id == "x" * 200


def test_files_wait_while_the_properties_of_their_table_are_missing(
    instance: Instance, file: Path, tmp_path: Path
) -> None:
    table = instance.table("t")
    submit_to_batcher(instance, "t", [str(file)])
    path = tmp_path / "instance" / "tables" / f"table-{table.ref.id}.properties"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(DataError, match="table 't' has no properties"):
        table.properties()
    path.write_bytes(content)
    assert create_all_ingest_batches(instance) == (1, ())


def test_the_report_lists_the_files_that_wait(instance: Instance, file: Path) -> None:
    create_table(instance, "u", SCHEMA)
    for name in ("t", "u"):
        receive_batch_message(
            instance, message(f'{{"tableName":"{name}","files":["{file}"]}}', name)
        )
    (listing,) = report(instance, ReportKind.INGEST_BATCHER)
    assert listing.summary == "2 waiting files, 10 bytes"
    assert [row[:4] for row in listing.rows] == [
        (str(file), "t", 5, 1_000),
        (str(file), "u", 5, 1_000),
    ]
    (listing,) = report(instance, ReportKind.INGEST_BATCHER, "u", limit=0)
    assert (listing.summary, listing.rows) == ("1 waiting file, 5 bytes", ())
    assert listing.note == "1 more waiting file: see --limit"
    create_all_ingest_batches(instance)
    (listing,) = report(instance, ReportKind.INGEST_BATCHER)
    assert (listing.summary, listing.rows) == ("0 waiting files, 0 bytes", ())
