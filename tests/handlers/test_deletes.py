"""Deletes by message, with Lambda's events and by a worker of a folder."""

import json
import threading
from typing import Any

import pytest

from sleeper.aws.instance import body_rewriter
from sleeper.deletion.message import run_delete_message, submit_delete
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobStep, new_task_id
from sleeper.jobs.queue import Message, QueueName
from sleeper.jobs.status import JobState, JobStatus
from sleeper.partitions.region import key_region
from sleeper.query.request import Query
from sleeper.query.service import open_query, read_schema
from sleeper.reports.output import ReportKind
from sleeper.reports.service import report
from sleeper.runs.retry_policy import RETRY_POLICIES
from sleeper.statestore.fold import DAY_MS
from sleeper.workers.worker import Worker
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, batch_of, failed, make_table, messages_of
from tests.ports import with_ports

CALLERS = "sleeper.table.query.callers"
# The sender of the messages of `events/sqs.json`.
SENDER = "AIDAIENQZJOLO23YVJ4VO"


@pytest.fixture
def table(instance: Instance) -> Instance:
    make_table(instance, "t")
    add_rows(instance, "t", *range(10))
    return instance


def body(**members: Any) -> str:
    return json.dumps({"id": "d", "tableName": "t", **members})


def delivered(*bodies: str) -> dict[str, Any]:
    """The event of standard queues, of messages that were sent now."""
    event = batch_of(messages_of(*bodies, groups=[""] * len(bodies)))
    for record in event["Records"]:
        record["attributes"]["SentTimestamp"] = str(2**42)
    return event


def keys(instance: Instance) -> list[int]:
    with open_query(instance, "t", Query()) as result:
        found: list[int] = result.read_all()["k"].to_pylist()
        return found


def jobs(instance: Instance) -> dict[str, JobStatus]:
    return {job.job_id: job for job in instance.jobs.tracker.recent(JobKind.DELETION)}


def test_rows_in_any_key_range_or_region_are_deleted(table: Instance, aws: Lambda) -> None:
    region = {"k": {"min": 8, "max": None}}
    sent = body(keys=[1, [2]], ranges=[[4, 6]], regions=[region])
    assert failed(aws.call(functions.delete_rows, delivered(sent))) == []
    assert keys(table) == [0, 3, 6, 7]
    job = jobs(table)["d"]
    assert (job.state, job.last_run and job.last_run.rows_written) == (JobState.COMMITTED, None)
    (listing,) = report(table, ReportKind.DELETION_JOBS, "t")
    assert listing.summary.startswith("1 deletion job")


def test_a_redelivered_message_deletes_once(table: Instance, aws: Lambda) -> None:
    named = body(ranges=[[0, 5]])
    for sent in (named, body(keys=[9], id=None)):
        event = delivered(sent)
        assert failed(aws.call(functions.delete_rows, event)) == []
        add_rows(table, "t", 0, 9)
        before = keys(table)
        assert failed(aws.call(functions.delete_rows, event)) == []
        assert keys(table) == before
    assert {name: job.state for name, job in jobs(table).items()} == {
        "d": JobState.COMMITTED,
        # Without an id, the message's own is the delete's.
        "m0": JobState.COMMITTED,
    }


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("{", "delete message is not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "expected an object"),
        (body(keys=[[[]] * 30]), '"keys[0]"'),
        (body(keys=json.loads("[" * 25 + "]" * 25)), "nested deeper than 20 levels"),
        (body(), "no rows to delete"),
        (body(all=False), "no rows to delete"),
        (body(keys=[]), "no rows to delete"),
        (body(regions=[{"k": {"min": 5, "max": 5}}]), "no rows to delete"),
        (body(all=1), '"all" must be true or false, not 1'),
        (body(all=True, keys=[1]), '"all" deletes all rows'),
        (body(keys=["x"]), 'delete message: "keys[0]"'),
        (body(ranges=[[2, 1]]), '"ranges[0]"'),
        (body(regions=[{"v": {"min": "a"}}]), "'v', which is not a row key field"),
        (body(keys=list(range(0, 20_002, 2))), "10,001 regions to delete"),
        (body(key=[1]), "unknown member 'key'"),
        (body(keys=[1], keysFrom=["x"]), "unknown member 'keysFrom'"),
        (body(keys=[1], id="x" * 201), "invalid id of a delete"),
        (body(keys=[1], id={}), '"id" is {} (expected text)'),
        (body(keys=[1], askedBy="x"), '"askedBy"'),
        (body(keys=[1], tableName=None), '"tableName" or "tableId" is missing'),
        (body(keys=[1], tableName="nope"), "no table is named 'nope'"),
        (body(keys=[1], tableName=None, tableId="0a1b2c3d"), "0a1b2c3d"),
    ],
)
def test_a_bad_message_is_rejected_and_others_are_run(
    table: Instance, aws: Lambda, sent: str, reason: str
) -> None:
    event = delivered(sent, body(keys=[1], id="good"))
    assert failed(aws.call(functions.delete_rows, event)) == []
    known = jobs(table)
    (bad,) = (job for name, job in known.items() if name != "good")
    assert bad.state is JobState.REJECTED
    assert reason in bad.reasons[0]
    assert len(bad.reasons[0]) <= 2_000
    assert known["good"].state is JobState.COMMITTED
    assert keys(table) == [0, *range(2, 10)]


def test_the_id_of_another_delete_is_rejected(table: Instance, aws: Lambda) -> None:
    assert failed(aws.call(functions.delete_rows, delivered(body(keys=[1])))) == []
    make_table(table, "u")
    other = delivered(body(keys=[2]), body(keys=[2], tableName="u"))
    assert failed(aws.call(functions.delete_rows, other)) == []
    runs = [run.state for run in jobs(table)["d"].runs if run.reasons]
    assert JobState.REJECTED in runs
    assert keys(table) == [0, *range(2, 10)]


def test_a_message_older_than_the_ids_is_rejected(table: Instance) -> None:
    late = Message("m", body(keys=[1]), "r", 1, table.clock() - 30 * DAY_MS)
    with pytest.raises(InvalidRequestError, match="delete d was sent 30 days ago"):
        run_delete_message(table, late)
    assert len(keys(table)) == 10


class _Killed(BaseException):
    """The end of the process."""


@pytest.mark.parametrize("place", ["start", "before the commit", "after the commit", "end"])
def test_a_delete_whose_worker_is_killed_is_done_once_by_the_next(
    table: Instance, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    message = Message("m", body(ranges=[[0, 5]], id=None), "r", 1, table.clock())
    tracker, store = type(table.jobs.tracker), type(table.table("t").state)
    record, commit = tracker.record, store.commit

    def killed_record(own: Any, *events: Any) -> None:
        if (place == "start") is (events[0].step is JobStep.STARTED):
            raise _Killed
        record(own, *events)

    def killed_commit(own: Any, *transactions: Any) -> None:
        if place == "after the commit":
            commit(own, *transactions)
        raise _Killed

    with monkeypatch.context() as patch:
        if "commit" in place:
            patch.setattr(store, "commit", killed_commit)
        patch.setattr(tracker, "record", killed_record)
        with pytest.raises(_Killed):
            run_delete_message(table, message)
    is_committed = place in ("after the commit", "end")
    assert len(keys(table)) == (5 if is_committed else 10)
    add_rows(table, "t", 0, 9)
    assert run_delete_message(table, message).already_done == is_committed
    assert jobs(table)["m"].state is JobState.COMMITTED
    # Rows that came after the commit stay.
    assert keys(table) == [*([0] if is_committed else []), *range(5, 10), 9]


def test_a_delete_of_an_unavailable_table_returns(
    table: Instance, aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = table.jobs.queue(QueueName.DELETION)
    queue.send(body(keys=[1]))
    (message,) = queue.receive()

    def unavailable(*_: Any) -> Any:
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        store = type(table.table("t").state)
        patch.setattr(store, "commit", unavailable)
        assert failed(aws.call(functions.delete_rows, batch_of([message]))) == [message.message_id]
    counts = queue.counts()
    assert (counts.delayed + counts.visible, counts.in_flight) == (1, 0)
    job = jobs(table)["d"]
    assert job.state is JobState.FAILED
    assert "no answer" in job.reasons[0]
    assert failed(aws.call(functions.delete_rows, batch_of([message]))) == []
    assert jobs(table)["d"].state is JobState.COMMITTED
    assert keys(table) == [0, *range(2, 10)]
    assert UnavailableError not in RETRY_POLICIES[QueueName.DELETION].dropped


def test_a_committer_commits_deletes_and_records_their_outcomes(
    table: Instance, aws: Lambda
) -> None:
    """As on AWS, where the function of deletes may not write to logs."""
    queues = (*table.jobs.queues, QueueName.COMMITS)
    instance = with_ports(table, jobs={"queues": queues})
    number = table.table("t").state.newest_number()

    def run(**members: Any) -> None:
        message = Message("m", body(**members), "r", 1, table.clock())
        assert run_delete_message(instance, message).number is None

    def commit() -> JobState:
        assert aws.take(QueueName.COMMITS, functions.commit_transactions) == 1
        return jobs(table)["d"].state

    run(keys=[1, 3])
    assert jobs(table)["d"].state is JobState.FINISHED
    assert table.table("t").state.newest_number() == number
    assert commit() is JobState.COMMITTED
    add_rows(table, "t", 1)
    # The message comes again, and changes nothing.
    run(keys=[3, 1])
    assert commit() is JobState.COMMITTED
    assert keys(table) == [0, 1, 2, *range(4, 10)]
    run(keys=[2])
    assert commit() is JobState.COMMITTED
    (refused,) = (each for each in jobs(table)["d"].runs if each.reasons)
    assert refused.state is JobState.REJECTED
    assert "d" in refused.reasons[0]
    assert keys(table) == [0, 1, 2, *range(4, 10)]


@pytest.mark.parametrize(
    "callers", [{SENDER: {"valueFields": []}, "*": {}}, {"somebody": {}}, {"*": {"iterator": "I"}}]
)
def test_senders_who_see_a_part_of_the_table_may_not_delete(
    table: Instance, aws: Lambda, callers: Any
) -> None:
    ref = table.table("t").ref
    table.tables.properties.change(ref.id, {CALLERS: json.dumps(callers)})
    claimed = body(all=True, id="claimed", askedBy=["somebody"])
    assert failed(aws.call(functions.delete_rows, delivered(body(all=True), claimed))) == []
    assert len(keys(table)) == 10
    assert {job.state for job in jobs(table).values()} == {JobState.REJECTED}
    assert f"caller '{SENDER}' may not" in jobs(table)["d"].reasons[0]


def test_a_redriven_delete_keeps_its_id_and_the_permissions_of_its_sender(
    table: Instance, aws: Lambda
) -> None:
    ref = table.table("t").ref
    restrictions: dict[str, Any] = {SENDER: {}, "AROA1": {"valueFields": []}, "AROA2": {}}
    table.tables.properties.change(ref.id, {CALLERS: json.dumps(restrictions)})
    redrive = body_rewriter(QueueName.DELETION)
    refused = redrive(body(keys=[1], id=None), "m7", "AROA1:somebody")
    allowed = redrive(redrive(body(keys=[2], id=None), "m8", "AROA2:x"), "m9", "AROA2:x")
    assert failed(aws.call(functions.delete_rows, delivered(refused, allowed))) == []
    states = {name: job.state for name, job in jobs(table).items()}
    assert states == {"m7": JobState.REJECTED, "m8": JobState.COMMITTED}
    assert keys(table) == [0, 1, *range(3, 10)]


def test_a_submitted_delete_is_run_by_a_worker(table: Instance) -> None:
    schema = read_schema(table, "t")
    regions = [key_region(schema, [key]) for key in (3, 4, 9)]
    assert submit_delete(table, "t", regions, "mine") == "mine"
    assert jobs(table)["mine"].state is JobState.CREATED
    assert len(keys(table)) == 10
    worker = Worker(table, new_task_id(), threading.Event())
    assert [worker.run_one(), worker.run_one()] == [True, False]
    assert jobs(table)["mine"].state is JobState.COMMITTED
    assert keys(table) == [0, 1, 2, 5, 6, 7, 8]
    with pytest.raises(InvalidRequestError, match="no rows to delete"):
        submit_delete(table, "t", [])
    with pytest.raises(InvalidRequestError, match="invalid id of a delete"):
        submit_delete(table, "t", regions, "")
    assert not worker.run_one()
