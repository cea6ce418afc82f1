import io
import json
from dataclasses import replace

import pytest

from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.queue import DeadLetter
from sleeper.jobs.status import fold_jobs, fold_tasks
from sleeper.reports.dead_letters import DeadLettersReport
from sleeper.reports.jobs import JobsReport
from sleeper.reports.listing import Column, ColumnKind, Listing
from sleeper.reports.output import OUTPUTS
from sleeper.reports.tables import TablesReport
from sleeper.reports.tasks import TasksReport
from sleeper.tables.table_ref import TableId, TableRef, TableState
from tests.approved.approval import check_approved

FLIGHTS, PLANES = TableId("0000000a"), TableId("0000000b")
NOON = 1_767_268_800_000


def event(job_id: str, step: JobStep, second: float, **changes: object) -> JobEvent:
    begun = JobEvent(FLIGHTS, job_id, JobKind.INGEST, step, NOON + int(second * 1000))
    return replace(begun, **changes)


def some_jobs() -> JobsReport:
    first, second = {"run_id": "r1", "task_id": "task-1"}, {"run_id": "r2", "task_id": "task-2"}
    events = [
        event("january", JobStep.CREATED, 0, inputs=1),
        event("january", JobStep.STARTED, 1, **first),
        event("january", JobStep.FAILED, 2, reasons=("process 12 of the task died",), **first),
        event("january", JobStep.STARTED, 3, **second),
        event("january", JobStep.FINISHED, 5.5, rows_read=27_004, rows_written=27_004, **second),
        event("january", JobStep.COMMITTED, 5.6, **second),
        event("february", JobStep.CREATED, 10, inputs=3),
        event("february", JobStep.STARTED, 11, **first),
        event("march", JobStep.CREATED, 20, inputs=1),
        event(
            "march [bold]",
            JobStep.REJECTED,
            21,
            table_id=PLANES,
            reasons=("march.csv: no column 'tailnum'", "march.csv: line 7:\nnot a number: 'x'"),
        ),
    ]
    return JobsReport(JobKind.INGEST, fold_jobs(events), {FLIGHTS: "flights"})


def some_tasks() -> TasksReport:
    return TasksReport(
        fold_tasks(
            [
                TaskEvent("task-1", "ingest", TaskStep.STARTED, NOON, process="12@1"),
                TaskEvent("task-1", "ingest", TaskStep.ENDED, NOON + 2_000, reason="it died"),
                TaskEvent("task-2", "ingest", TaskStep.STARTED, NOON + 3_000, process="13@2"),
                TaskEvent(
                    "task-2",
                    "ingest",
                    TaskStep.ENDED,
                    NOON + 9_000,
                    jobs=1,
                    rows_read=27_004,
                    rows_written=27_004,
                ),
                TaskEvent("task-3", "compaction", TaskStep.STARTED, NOON + 4_000, process="14@3"),
            ]
        )
    )


def some_dead_letters() -> DeadLettersReport:
    body = json.dumps({"id": "j1", "tableName": "flights", "files": ["bucket/" + "x" * 100]})
    letter = DeadLetter("m1", body, 3, NOON, NOON + 60_000)
    return DeadLettersReport({"ingest": (letter,), "compaction": (), "a": (letter,)})


LISTINGS = {
    "tables": TablesReport(
        (
            TableRef(FLIGHTS, "flights"),
            TableRef(PLANES, "planes ✈", online=False),
            TableRef(TableId("0000000c"), "old", state=TableState.DELETING),
        )
    ).listing(),
    "no-tables": TablesReport(()).listing(),
    "ingest-jobs": some_jobs().listing(),
    "tasks": some_tasks().listing(),
    "dead-letters": some_dead_letters().listing(),
    "column-kinds": Listing(
        "kinds",
        "one of each",
        tuple(Column(kind.value, kind.value, kind) for kind in ColumnKind),
        (
            ("text", 1_234_567, 1_234_567, 1234.567, NOON),
            (None, None, None, None, None),
            ("", 0, 1023, 0.04, 0),
        ),
    ),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", LISTINGS)
def test_a_report_reads_as_approved(name: str, output: str) -> None:
    stream = io.StringIO()
    OUTPUTS[output](LISTINGS[name], stream)
    check_approved(f"{name}.{output}", stream.getvalue())


@pytest.mark.parametrize("name", LISTINGS)
def test_json_is_one_object_a_row_with_every_column(name: str) -> None:
    stream = io.StringIO()
    OUTPUTS["json"](LISTINGS[name], stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(rows) == len(LISTINGS[name].rows)
    for row in rows:
        assert list(row) == ["report", *(column.name for column in LISTINGS[name].columns)]
