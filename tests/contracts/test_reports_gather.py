"""Tests of the reports of a local instance."""

from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.tracker import JobTracker, TaskTracker
from sleeper.reports.jobs import describe_dead_letters, list_jobs, list_tasks
from sleeper.reports.tables import list_tables
from sleeper.tables import TableId, TableIndex, TableRef, mark_table_deleting
from tests.contracts.conftest import Queues, Store


def none(_: object) -> None:
    """No task is lost."""


A, B = TableId("0000000a"), TableId("0000000b")


def test_the_report_on_tables_has_those_being_deleted(index: Store[TableIndex]) -> None:
    index.port.create(TableRef(A, "zebras"))
    index.port.create(TableRef(B, "apples"))
    mark_table_deleting(index.port, "apples")
    listing = list_tables(index.again())
    assert [row[:4] for row in listing.rows] == [
        ("zebras", A, True, "active"),
        ("apples", B, True, "deleting"),
    ]
    assert listing.summary == "1 table, 1 being deleted"


def test_the_report_on_jobs_names_the_tables(
    index: Store[TableIndex], job_tracker: Store[JobTracker]
) -> None:
    index.port.create(TableRef(A, "apples"))
    job_tracker.port.record(
        JobEvent(A, "j1", JobKind.COMPACTION, JobStep.CREATED, 1),
        JobEvent(B, "j2", JobKind.COMPACTION, JobStep.CREATED, 2),
        JobEvent(A, "j3", JobKind.INGEST, JobStep.CREATED, 3),
    )
    listing = list_jobs(job_tracker.port, index.port, JobKind.COMPACTION, none)
    assert listing.name == "compaction-jobs"
    assert [row[:3] for row in listing.rows] == [("j2", B, "created"), ("j1", "apples", "created")]
    narrowed = list_jobs(job_tracker.port, index.port, JobKind.COMPACTION, none, A)
    assert [row[0] for row in narrowed.rows] == ["j1"]


def test_the_report_on_tasks_filters_by_kind(task_tracker: Store[TaskTracker]) -> None:
    task_tracker.port.record(TaskEvent("t1", "ingest", TaskStep.STARTED, 1))
    task_tracker.port.record(TaskEvent("t2", "split", TaskStep.STARTED, 2))
    assert len(list_tasks(task_tracker.port, none).rows) == 2
    assert [row[0] for row in list_tasks(task_tracker.port, none, "split").rows] == ["t2"]


def test_the_report_on_dead_letters_covers_all_queues(queues: Queues) -> None:
    queues.plain.send("poison")
    for _ in range(3):
        queues.plain.receive()
        queues.clock.pass_seconds(30)
    assert queues.plain.receive() == ()
    letters = {"plain": queues.plain_dead, "fifo": queues.fifo_dead}
    listing = describe_dead_letters({name: item.list() for name, item in letters.items()})
    (row,) = listing.rows
    assert (row[0], row[-1]) == ("plain", "poison")
    # SQS counts the listing as a receive.
    assert row[2] in ((3, 4) if queues.is_sqs else (3,))
