"""Tests of trackers that apply to DynamoDB only: expiry, batches, listing without scans."""

from dataclasses import replace

import pytest

from sleeper.aws.trackers import DynamoJobTracker, DynamoTaskTracker
from sleeper.errors import UnavailableError
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.status import JobState
from sleeper.properties.deployed import JOB_TRACKER_TABLE, TASK_TRACKER_TABLE
from sleeper.retries import RETRY_VARIABLE
from sleeper.tables import TableId
from tests.servers.dynoxide import DynamoTables
from tests.unit.aws.conftest import FaultyClient
from tests.unit.aws.test_errors import client_error

TABLE, OTHER = TableId("0000000a"), TableId("0000000b")
AT_MS = 1_767_225_600_000
DAY_SECONDS = 86_400
CREATED = JobEvent(TABLE, "j", JobKind.COMPACTION, JobStep.CREATED, AT_MS, inputs=2)


class JobTrackerUnderTest:
    def __init__(self, tables: DynamoTables, days: int = 30) -> None:
        self.client = FaultyClient(tables.client)
        self.name = tables.name(JOB_TRACKER_TABLE)
        self.tracker = DynamoJobTracker(self.client, self.name, days)

    def days_kept(self) -> dict[str, int]:
        """Returns the days until expiry by the event's step."""
        items = self.client.inner.scan(TableName=self.name)["Items"]
        remaining = {i["step"]["S"]: int(i["expiryDate"]["N"]) - AT_MS // 1000 for i in items}
        return {step: seconds // DAY_SECONDS for step, seconds in remaining.items()}


@pytest.mark.parametrize(("days", "rejected_days"), [(2, 7), (30, 30)])
def test_events_expire_and_rejections_are_kept_a_week(
    tables: DynamoTables, days: int, rejected_days: int
) -> None:
    tracker = JobTrackerUnderTest(tables, days)
    rejected_event = replace(CREATED, step=JobStep.REJECTED, reasons=("no such field",))
    tracker.tracker.record(CREATED, rejected_event)
    assert tracker.days_kept() == {"created": days, "rejected": rejected_days}


def test_tasks_expire(tables: DynamoTables) -> None:
    name = tables.name(TASK_TRACKER_TABLE)
    tracker = DynamoTaskTracker(tables.client, name, 30)
    tracker.record(TaskEvent("t", "ingest", TaskStep.STARTED, AT_MS))
    (item,) = tables.client.scan(TableName=name)["Items"]
    assert int(item["expiryDate"]["N"]) == AT_MS // 1000 + 30 * DAY_SECONDS


def test_hundreds_of_events_are_recorded_without_repeats(
    tables: DynamoTables,
) -> None:
    tracker = JobTrackerUnderTest(tables).tracker
    events = [replace(CREATED, job_id=f"j{n}", at_ms=AT_MS + n) for n in range(250)]
    tracker.record(*events[40:60], *events[150:160])
    later = [replace(event, at_ms=event.at_ms + 1_000_000) for event in events]
    tracker.record(*later[30:70])
    tracker.record(*events)
    assert tracker.unknown(TABLE, [f"j{n}" for n in range(251)]) == ("j250",)
    assert tracker.job(TABLE, "j65").created_ms == AT_MS + 65
    newest = tracker.recent(limit=3)
    assert [job.job_id for job in newest] == ["j249", "j248", "j247"]


def test_recent_jobs_of_a_table_are_found_among_many_of_other_tables(tables: DynamoTables) -> None:
    tracker = JobTrackerUnderTest(tables)
    ours = [replace(CREATED, job_id=f"j{n}", at_ms=AT_MS + n) for n in range(3)]
    others = [
        replace(CREATED, table_id=OTHER, job_id=f"o{n}", at_ms=AT_MS + 10 + n) for n in range(1_200)
    ]
    tracker.tracker.record(*ours, *others)
    result = tracker.tracker.recent(JobKind.COMPACTION, TABLE, limit=2)
    assert [job.job_id for job in result] == ["j2", "j1"]
    assert "scan" not in tracker.client.calls


def test_a_job_with_only_events_of_a_run_is_known(tables: DynamoTables) -> None:
    tracker = JobTrackerUnderTest(tables).tracker
    tracker.record(replace(CREATED, step=JobStep.STARTED, run_id="r"))
    assert tracker.unknown(TABLE, ["j", "k"]) == ("k",)


def test_reasons_are_cut_to_the_size_of_an_item(tables: DynamoTables) -> None:
    tracker = JobTrackerUnderTest(tables).tracker
    tracker.record(replace(CREATED, step=JobStep.REJECTED, reasons=("\U0001f40b" * 500_000,) * 100))
    job = tracker.job(TABLE, "j")
    assert job.state is JobState.REJECTED
    assert (len(job.reasons), len(job.reasons[0])) == (10, 5_000)


THROTTLED = client_error("TransactionCanceledException", "ThrottlingError", "None")


def test_a_throttled_transaction_is_retried(tables: DynamoTables) -> None:
    tracker = JobTrackerUnderTest(tables)
    tracker.client.fail("transact_write_items", THROTTLED)
    tracker.client.fail("transact_write_items", THROTTLED)
    tracker.tracker.record(CREATED, replace(CREATED, step=JobStep.FINISHED, run_id="r"))
    assert tracker.tracker.job(TABLE, "j").state is JobState.FINISHED


def test_a_throttled_tracker_is_unavailable_and_accepts_the_events_later(
    tables: DynamoTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.retries.sleep", lambda _: None)
    # Two seconds are eight attempts.
    monkeypatch.setenv(RETRY_VARIABLE, "2")
    tracker = JobTrackerUnderTest(tables)
    for _ in range(8):
        tracker.client.fail("transact_write_items", THROTTLED)
    finished = replace(CREATED, step=JobStep.FINISHED, run_id="r")
    with pytest.raises(UnavailableError, match="job tracker"):
        tracker.tracker.record(CREATED, finished)
    tracker.tracker.record(CREATED, finished)
    assert tracker.tracker.job(TABLE, "j").state is JobState.FINISHED


def test_unprocessed_items_of_a_batch_are_read_again(tables: DynamoTables) -> None:
    tracker = JobTrackerUnderTest(tables)
    tracker.tracker.record(CREATED, replace(CREATED, job_id="k"))
    read = tracker.client.inner.batch_get_item
    responses = []

    def half(RequestItems: dict[str, dict[str, list[object]]]) -> object:
        (request,) = RequestItems.values()
        keys = request["Keys"]
        response = read(RequestItems={tracker.name: {**request, "Keys": keys[:1]}})
        if len(keys) > 1:
            response["UnprocessedKeys"] = {tracker.name: {**request, "Keys": keys[1:]}}
        responses.append(response)
        return response

    tracker.client.batch_get_item = half  # type: ignore[method-assign, assignment]
    assert tracker.tracker.unknown(TABLE, ["j", "k", "l"]) == ("l",)
    assert len(responses) == 3
