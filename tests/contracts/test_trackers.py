from dataclasses import replace
from itertools import permutations

import pytest

from sleeper.errors import NotFoundError
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.status import JobState
from sleeper.jobs.tracker import JobTracker, TaskTracker
from sleeper.tables import TableId
from tests.contracts.conftest import Store

TABLE = TableId("0000000a")
CREATED = JobEvent(TABLE, "j1", JobKind.INGEST, JobStep.CREATED, 1_000, inputs=3)
STARTED = replace(
    CREATED, step=JobStep.STARTED, at_ms=2_000, run_id="r1", task_id="t1", inputs=None
)
FINISHED = replace(STARTED, step=JobStep.FINISHED, at_ms=4_000, rows_read=10, rows_written=8)
COMMITTED = replace(STARTED, step=JobStep.COMMITTED, at_ms=5_000)
FAILED = replace(STARTED, step=JobStep.FAILED, at_ms=3_000, reasons=("disk full", "at row 7"))


def test_a_job_goes_through_its_steps(job_tracker: Store[JobTracker]) -> None:
    seen = []
    for event in (CREATED, STARTED, FINISHED, COMMITTED):
        job_tracker.port.record(event)
        seen.append(job_tracker.again().job(TABLE, "j1").state)
    assert seen == [JobState.CREATED, JobState.RUNNING, JobState.FINISHED, JobState.COMMITTED]
    job = job_tracker.port.job(TABLE, "j1")
    assert (job.kind, job.created_ms, job.updated_ms, job.inputs) == (
        JobKind.INGEST,
        1_000,
        5_000,
        3,
    )
    (run,) = job.runs
    assert (run.task_id, run.rows_read, run.rows_written, run.seconds) == ("t1", 10, 8, 2.0)
    assert run.rows_per_second == 4.0


def test_runs_of_adapters_have_a_source_a_version_and_bytes(
    job_tracker: Store[JobTracker],
) -> None:
    started = replace(STARTED, kind=JobKind.ADAPTER, source="table a")
    finished = replace(
        FINISHED, kind=JobKind.ADAPTER, bytes=2**40, number=7, source="table a at version 3"
    )
    job_tracker.port.record(CREATED, started)
    (run,) = job_tracker.again().job(TABLE, "j1").runs
    assert (run.source, run.number, run.bytes) == ("table a", None, None)
    job_tracker.port.record(finished, replace(finished, at_ms=finished.at_ms + 1, number=8))
    (run,) = job_tracker.again().job(TABLE, "j1").runs
    assert (run.source, run.number, run.bytes) == ("table a at version 3", 7, 2**40)


def test_runs_of_ingests_have_the_number_of_rejected_rows(job_tracker: Store[JobTracker]) -> None:
    job_tracker.port.record(CREATED, STARTED, replace(FINISHED, rows_rejected=2))
    (run,) = job_tracker.again().job(TABLE, "j1").runs
    assert (run.rows_written, run.rows_rejected) == (8, 2)


def test_the_order_and_repetition_of_events_do_not_matter(
    job_tracker: Store[JobTracker],
) -> None:
    job_tracker.port.record(CREATED, STARTED, FINISHED, COMMITTED)
    expected = job_tracker.port.job(TABLE, "j1")
    for number, order in enumerate(permutations((CREATED, STARTED, FINISHED, COMMITTED))):
        job_id = f"again-{number}"
        for event in (*order, *order):
            later = replace(event, job_id=job_id)
            job_tracker.port.record(later, replace(later, at_ms=later.at_ms + 1))
        again = job_tracker.port.job(TABLE, job_id)
        assert replace(again, job_id="j1", updated_ms=5_000) == expected
    assert len(job_tracker.list_stored()) == 4 * (1 + 24)


def test_a_crash_may_leave_a_start_without_an_end(job_tracker: Store[JobTracker]) -> None:
    again = replace(STARTED, run_id="r2", at_ms=9_000, task_id="t2")
    job_tracker.port.record(CREATED, STARTED, again, replace(again, step=JobStep.COMMITTED))
    job = job_tracker.port.job(TABLE, "j1")
    assert [run.state for run in job.runs] == [JobState.RUNNING, JobState.COMMITTED]
    assert job.state is JobState.COMMITTED
    assert job.last_run is not None
    assert job.last_run.run_id == "r2"


def test_a_failed_job_has_its_reason_until_its_retry(job_tracker: Store[JobTracker]) -> None:
    job_tracker.port.record(CREATED, STARTED, FAILED)
    job = job_tracker.port.job(TABLE, "j1")
    assert (job.state, job.reasons) == (JobState.FAILED, ("disk full", "at row 7"))
    job_tracker.port.record(replace(STARTED, run_id="r2", at_ms=6_000))
    job = job_tracker.port.job(TABLE, "j1")
    assert (job.state, job.reasons) == (JobState.RUNNING, ())
    assert job.runs[0].reasons == ("disk full", "at row 7")


def test_a_commit_outranks_a_failure_in_any_order(
    job_tracker: Store[JobTracker],
) -> None:
    job_tracker.port.record(CREATED, STARTED, replace(FAILED, at_ms=9_000))
    job_tracker.port.record(COMMITTED)
    job = job_tracker.port.job(TABLE, "j1")
    assert (job.state, job.reasons, job.runs[0].reasons) == (JobState.COMMITTED, (), ())


def test_a_redelivered_message_leaves_a_job_committed(
    job_tracker: Store[JobTracker],
) -> None:
    again = replace(STARTED, run_id="r2", at_ms=9_000)
    job_tracker.port.record(CREATED, STARTED, COMMITTED, again)
    job_tracker.port.record(replace(FAILED, run_id="r2", at_ms=9_500))
    job = job_tracker.port.job(TABLE, "j1")
    assert (job.state, job.reasons) == (JobState.COMMITTED, ())
    assert job.last_run is not None
    assert job.last_run.run_id == "r1"


def test_a_job_can_be_rejected_before_its_first_run(job_tracker: Store[JobTracker]) -> None:
    rejected = replace(CREATED, step=JobStep.REJECTED, inputs=None, reasons=("no field 'x'",))
    job_tracker.port.record(rejected)
    job = job_tracker.port.job(TABLE, "j1")
    assert (job.state, job.reasons, job.created_ms) == (
        JobState.REJECTED,
        ("no field 'x'",),
        None,
    )


def test_recent_jobs_are_filtered_and_newest_first(job_tracker: Store[JobTracker]) -> None:
    other = TableId("0000000b")
    job_tracker.port.record(
        CREATED,
        replace(CREATED, job_id="j2", at_ms=3_000, kind=JobKind.COMPACTION),
        replace(CREATED, job_id="j3", at_ms=2_000, table_id=other),
    )
    tracker = job_tracker.again()
    assert [j.job_id for j in tracker.recent()] == ["j2", "j3", "j1"]
    assert [j.job_id for j in tracker.recent(kind=JobKind.INGEST)] == ["j3", "j1"]
    assert [j.job_id for j in tracker.recent(table_id=TABLE)] == ["j2", "j1"]
    assert [j.job_id for j in tracker.recent(JobKind.INGEST, TABLE)] == ["j1"]
    assert [j.job_id for j in tracker.recent(limit=1)] == ["j2"]


def test_jobs_of_one_id_on_two_tables_are_two(job_tracker: Store[JobTracker]) -> None:
    other = TableId("0000000b")
    job_tracker.port.record(CREATED, replace(STARTED, table_id=other))
    assert job_tracker.port.job(TABLE, "j1").runs == ()
    assert len(job_tracker.port.job(other, "j1").runs) == 1
    with pytest.raises(NotFoundError, match="'j2'"):
        job_tracker.port.job(TABLE, "j2")


def test_all_events_of_old_jobs_are_removed(job_tracker: Store[JobTracker]) -> None:
    job_tracker.port.record(CREATED, STARTED, replace(CREATED, job_id="j2", at_ms=1_500))
    assert job_tracker.port.remove_before(2_000) == 1
    assert [j.job_id for j in job_tracker.port.recent()] == ["j1"]
    assert job_tracker.list_stored() == [("j1", "", "created"), ("j1", "r1", "started")]


BEGUN = TaskEvent("t1", "compaction", TaskStep.STARTED, 1_000, process="12@34")
ENDED = TaskEvent("t1", "compaction", TaskStep.ENDED, 5_000, jobs=2, rows_read=9, rows_written=7)
FOUND_DEAD = TaskEvent("t1", "compaction", TaskStep.ENDED, 2_000, reason="process 12 died")


def test_a_task_runs_until_its_end_is_recorded(task_tracker: Store[TaskTracker]) -> None:
    task_tracker.port.record(BEGUN)
    assert task_tracker.again().task("t1").running
    task_tracker.port.record(ENDED)
    task_tracker.port.record(ENDED)
    task_tracker.port.record(BEGUN)
    task = task_tracker.again().task("t1")
    assert not task.running
    assert (task.process, task.started_ms, task.ended_ms) == ("12@34", 1_000, 5_000)
    assert (task.jobs, task.rows_read, task.rows_written) == (2, 9, 7)
    assert task_tracker.list_stored() == [("t1", "ended"), ("t1", "started")]


@pytest.mark.parametrize("order", [(ENDED, FOUND_DEAD), (FOUND_DEAD, ENDED)])
def test_a_task_s_own_end_outranks_a_detected_one(
    task_tracker: Store[TaskTracker], order: tuple[TaskEvent, TaskEvent]
) -> None:
    for event in (BEGUN, *order):
        task_tracker.port.record(event)
    task = task_tracker.port.task("t1")
    assert (task.ended_ms, task.reason, task.jobs) == (5_000, None, 2)


def test_the_latest_heartbeat_is_kept_in_any_order(
    task_tracker: Store[TaskTracker],
) -> None:
    task_tracker.port.record(BEGUN)
    assert task_tracker.port.task("t1").heartbeat_ms is None
    for at_ms in (3_000, 4_000, 2_000, 4_000):
        task_tracker.port.record(replace(BEGUN, step=TaskStep.HEARTBEAT, process=None, at_ms=at_ms))
    task = task_tracker.again().task("t1")
    assert (task.heartbeat_ms, task.started_ms, task.running) == (4_000, 1_000, True)
    assert (task.process, task.last_seen_ms) == ("12@34", 4_000)
    task_tracker.port.record(replace(BEGUN, task_id="t2", at_ms=1_500))
    assert [t.task_id for t in task_tracker.port.recent()] == ["t2", "t1"]
    assert task_tracker.port.remove_before(3_500) == 1
    assert [t.task_id for t in task_tracker.port.recent()] == ["t1"]


def test_recent_tasks_are_newest_first_and_old_ones_are_removed(
    task_tracker: Store[TaskTracker],
) -> None:
    task_tracker.port.record(BEGUN)
    task_tracker.port.record(ENDED)
    task_tracker.port.record(replace(BEGUN, task_id="t2", kind="ingest", at_ms=3_000))
    assert [t.task_id for t in task_tracker.port.recent()] == ["t2", "t1"]
    assert [t.task_id for t in task_tracker.port.recent("compaction")] == ["t1"]
    assert task_tracker.port.remove_before(4_000) == 1
    assert [t.task_id for t in task_tracker.port.recent()] == ["t1"]
    with pytest.raises(NotFoundError, match="'t2'"):
        task_tracker.port.task("t2")


def test_jobs_without_events_are_unknown(job_tracker: Store[JobTracker]) -> None:
    job_tracker.port.record(CREATED)
    assert job_tracker.again().unknown(TABLE, ["x", "j1", "a"]) == ("x", "a")
    assert job_tracker.port.unknown(TableId("0000000b"), ["j1"]) == ("j1",)
    assert job_tracker.port.unknown(TABLE, []) == ()
