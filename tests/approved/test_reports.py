import io
import json
from dataclasses import replace

import pytest

from sleeper.files import DataFile, FileReference
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.query_tracker import QueryState, QueryStatus
from sleeper.jobs.queue import DeadLetter
from sleeper.jobs.status import TaskLoss, fold_jobs, fold_tasks
from sleeper.partitions.partition import Partition, PartitionId, split_region
from sleeper.partitions.region import whole_region
from sleeper.properties.values import TableProperties, instance_properties, table_properties
from sleeper.reports.jobs import describe_dead_letters, describe_jobs, describe_tasks
from sleeper.reports.output import OUTPUTS, Column, ColumnKind, Listing
from sleeper.reports.partitions import ReportedPartition, describe_partitions
from sleeper.reports.properties import ChangesReport, collect_warnings, gather_table_properties
from sleeper.reports.queries import QueryReport, describe_queries
from sleeper.reports.tables import (
    ReportedTable,
    StateReport,
    TableReport,
    describe_files,
    describe_tables,
)
from sleeper.schema.model import Field, ListType, PrimitiveType, Schema, schema_to_json
from sleeper.statestore.holds import Hold
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.reading.followers import Follower
from sleeper.tables import TableId, TableRef, TableState
from tests.approved.approval import check_approved

FLIGHTS, PLANES = TableId("0000000a"), TableId("0000000b")
NOON = 1_767_268_800_000


def event(job_id: str, step: JobStep, second: float, **changes: object) -> JobEvent:
    begun = JobEvent(FLIGHTS, job_id, JobKind.INGEST, step, NOON + int(second * 1000))
    return replace(begun, **changes)


def some_jobs() -> Listing:
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
    return describe_jobs(JobKind.INGEST, fold_jobs(events), {FLIGHTS: "flights"}, {})


def some_tasks() -> Listing:
    tasks = fold_tasks(
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
            TaskEvent("task-3", "compaction", TaskStep.HEARTBEAT, NOON + 64_000),
            TaskEvent("task-4", "compaction", TaskStep.STARTED, NOON + 5_000, process="15@3"),
        ]
    )
    losses = {"task-4": TaskLoss("last heartbeat 31 minutes ago", NOON + 5_000)}
    return describe_tasks({task: losses.get(task.task_id) for task in tasks})


def some_dead_letters() -> Listing:
    body = json.dumps({"id": "j1", "tableName": "flights", "files": ["bucket/" + "x" * 100]})
    letter = DeadLetter("m1", body, 3, NOON, NOON + 60_000)
    return describe_dead_letters({"ingest": (letter,), "compaction": (), "a": (letter,)})


SCHEMA = Schema(
    (Field("tailnum", PrimitiveType.STRING), Field("hash", PrimitiveType.BYTE_ARRAY)),
    (Field("sched_dep", PrimitiveType.LONG),),
    (
        Field("delay", PrimitiveType.INT, nullable=True),
        Field("tags", ListType(PrimitiveType.STRING)),
    ),
)
TOTALS = Totals(2, 3, 336_776, 7_000_000, 5, 3, 1)


def a_tree() -> list[Partition]:
    """Returns five partitions, split on the first field, then on the second."""
    root = Partition(PartitionId("root"), whole_region(SCHEMA), None, False)
    low, high = split_region(root.region, 0, 'N5"')
    left = Partition(PartitionId("left"), low, root.id, False)
    below, above = split_region(low, 1, b"\x80")
    return [
        root,
        left,
        Partition(PartitionId("right"), high, root.id),
        Partition(PartitionId("left-low"), below, left.id),
        Partition(PartitionId("left-high"), above, left.id),
    ]


def some_partitions() -> Listing:
    root, left, right, low, high = a_tree()
    return describe_partitions(
        "flights",
        SCHEMA,
        (
            ReportedPartition(root, 0, 300, 0, 1),
            ReportedPartition(left, 1, 0, 0, 0),
            ReportedPartition(low, 2, 200_000, 75, 3),
            ReportedPartition(high, 2, 0, 75, 0),
            ReportedPartition(right, 1, 100_000, 150, 1),
        ),
        7,
        4,
    )


def some_files() -> Listing:
    path = "0000000a/data/partition_root/1767268800000-0123456789abcdef.parquet"
    file = DataFile(
        path,
        300,
        4_096,
        ("N1", b"\x00\xff"),
        ("unknown ✈", b""),
        smallest_number=2,
        largest_number=9,
    )
    left, right = PartitionId("left"), PartitionId("right")
    return describe_files(
        "flights",
        SCHEMA,
        (
            (file, (FileReference(path, left, 100), FileReference(path, right, 200))),
            (replace(file, largest_number=None), (FileReference(path, left, 300, "job-1"),)),
        ),
        1_002,
    )


def some_state() -> StateReport:
    return StateReport(
        "flights",
        1_234,
        200,
        TOTALS,
        2,
        (Hold("hold-1", "query flights (host, process 12)", 300, NOON),),
        (
            Follower("feed", "feed@7", 6, 1_000, 234),
            Follower("other [bold]", "other@8", 6, 1_234, 0),
        ),
        (1_200, 1_000),
    )


def some_properties() -> TableProperties:
    of_instance = instance_properties(
        {"sleeper.id": "me", "sleeper.default.table.gc.delay.minutes": "3"}
    )
    values = {
        "sleeper.table.name": "flights",
        "sleeper.table.id": FLIGHTS,
        "sleeper.table.schema": schema_to_json(SCHEMA),
        "sleeper.table.compaction.files.batch.size": "4",
        "sleeper.table.statestore.classname": "ignored",
    }
    return table_properties(values, of_instance)


def some_table() -> TableReport:
    properties = gather_table_properties(some_properties(), "flights")
    text = properties.only_set().without(
        ("sleeper.table.name", "sleeper.table.id", "sleeper.table.schema")
    )
    return TableReport(TableRef(FLIGHTS, "flights"), 1_234, SCHEMA, TOTALS, text)


def some_changes() -> ChangesReport:
    changes = {
        "sleeper.table.compaction.files.batch.size": "",
        "sleeper.table.gc.delay.minutes": "3",
        "sleeper.table.statestore.classname": "other",
    }
    previous, current = some_properties(), some_properties().with_values(changes)
    return ChangesReport(
        tuple(changes),
        gather_table_properties(previous, "flights"),
        gather_table_properties(current, "flights"),
        collect_warnings(changes, current),
    )


def some_queries() -> tuple[QueryStatus, ...]:
    time_ms = 1_767_225_600_000
    return (
        QueryStatus("q-3", "-", QueryState.FAILED, 0, time_ms, "no table is named 'planes'"),
        QueryStatus("q-2", "-", QueryState.PARTIALLY_FAILED, 12, time_ms, "too slow", "0000000a"),
        QueryStatus("q-1", "-", QueryState.COMPLETED, 1_234_567, time_ms, table_id="0000000c"),
    )


def some_subqueries() -> tuple[QueryStatus, ...]:
    time_ms = 1_767_225_600_000
    return (
        QueryStatus("q-2", "1a2b", QueryState.COMPLETED, 12, time_ms),
        QueryStatus("q-2", "3c4d", QueryState.FAILED, 0, time_ms, "too slow"),
    )


LISTINGS = {
    "tables": describe_tables(
        [
            ReportedTable(TableRef(FLIGHTS, "flights"), TOTALS),
            ReportedTable(TableRef(PLANES, "planes ✈", online=False)),
            ReportedTable(TableRef(TableId("0000000c"), "old", state=TableState.DELETING)),
        ],
        5,
    ),
    "no-tables": describe_tables([], 0),
    "ingest-jobs": some_jobs(),
    "tasks": some_tasks(),
    "dead-letters": some_dead_letters(),
    "column-kinds": Listing(
        "kinds",
        "one of each",
        tuple(Column(kind.value, kind.value, kind) for kind in ColumnKind),
        (
            ("text", 1_234_567, 1_234_567, 1234.567, 1234.567, NOON, "a/b/c.parquet"),
            (None, None, None, None, None, None, None),
            ("", 0, 1023, 0.04, 0.004, 0, ""),
            (("a", 1), 0, 1, 0.0, 0.0, 0, {"a": None}),
        ),
        note="and what was left out",
    ),
    "files": some_files(),
    "partitions": some_partitions(),
    "state": some_state().listing(),
    "holds": some_state().holds_listing(),
    "followers": some_state().followers_listing(),
    "queries": describe_queries(
        some_queries(), {FLIGHTS: "flights"}, "older queries exist: see --limit"
    ),
    "query": QueryReport(some_queries()[1], some_subqueries()).listing(),
    **dict(zip(("table", "schema", "properties"), some_table().listings(), strict=True)),
    "changes": some_changes().listing(),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", LISTINGS)
def test_report_matches_the_approved_text(name: str, output: str) -> None:
    stream = io.StringIO()
    OUTPUTS[output](LISTINGS[name], stream)
    check_approved(f"{name}.{output}", stream.getvalue())


@pytest.mark.parametrize("name", LISTINGS)
def test_json_has_one_object_per_row_with_every_column(name: str) -> None:
    stream = io.StringIO()
    OUTPUTS["json"](LISTINGS[name], stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(rows) == len(LISTINGS[name].rows)
    for row in rows:
        assert list(row) == ["report", *(column.name for column in LISTINGS[name].columns)]


def test_warnings_concern_changed_properties_only() -> None:
    assert some_changes().warnings == (
        "property sleeper.table.statestore.classname means nothing here, and is ignored",
    )


def test_change_warns_if_a_deployment_is_required() -> None:
    current = instance_properties({"sleeper.id": "me", "sleeper.vpc": "v"})
    (warning,) = collect_warnings({"sleeper.vpc": "v", "sleeper.local.workers": "2"}, current)
    assert warning.startswith("property sleeper.vpc takes effect at the next deployment")
