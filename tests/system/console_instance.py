"""An instance for the console: tables with rows, jobs of an hour, dead letters and followers."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sleeper.admin.tables import create_follower, create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.tables import TableId
from tests.clock import FakeClock

_MINUTE_MS = 60_000
# 2026-11-25 09:00 UTC
START_MS = 1_795_597_200_000
_TRIPS_SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "cab", "type": "LongType"}],
        "sortKeyFields": [{"name": "pickup", "type": "LongType"}],
        "valueFields": [
            {"name": "zone", "type": "StringType"},
            {"name": "distance", "type": "DoubleType"},
            {"name": "fare", "type": "DoubleType", "nullable": True},
            {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
        ],
    }
)
_READINGS_SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "city", "type": "StringType"}],
        "sortKeyFields": [{"name": "hour", "type": "LongType"}],
        "valueFields": [{"name": "celsius", "type": "DoubleType"}],
    }
)
_ZONES = ("Airport", "Harbour", "Market", "Museum", "Old town", "Station", "University")
_CITIES = ("Accra", "Bergen", "Lima", "Oslo", "Perth", "Quito")
TRIPS = 6_000


@contextmanager
def console_instance(folder: Path) -> Iterator[Instance]:
    """Tables `trips`, over 16 leaves, `readings`, and `empty`, whose name needs quotes in SQL."""
    create_local_instance(folder, "city", {"sleeper.query.memory.bytes": "256M"})
    clock = FakeClock(START_MS)
    instance = open_local_instance(folder, clock)
    try:
        splits = [n * n * 4 for n in range(1, 16)]
        trips = create_table(instance, "trips", _TRIPS_SCHEMA, {}, splits)
        readings = create_table(instance, "readings", _READINGS_SCHEMA, {}, ["M"])
        create_table(instance, "not yet used", _READINGS_SCHEMA)
        for number in range(3):
            ingest_rows(instance, "trips", [_trips(number)], f"trips-2026-11-{number + 23}")
            clock.pass_seconds(300)
        ingest_rows(instance, "readings", [_readings()], "readings-2026-11")
        _record_jobs(instance, trips.id, readings.id)
        _add_followers(instance)
        _add_dead_letter(instance, clock)
        yield instance
    finally:
        instance.close()


def _trips(number: int) -> pa.RecordBatch:
    rows = TRIPS // 3
    chance = random.Random(number)
    return pa.RecordBatch.from_pydict(
        {
            "cab": [chance.randrange(1000) for _ in range(rows)],
            "pickup": [1_764_000_000 + number * rows + i for i in range(rows)],
            "zone": [chance.choice(_ZONES) for _ in range(rows)],
            "distance": [round(chance.uniform(0.4, 24), 1) for _ in range(rows)],
            "fare": [None if i % 97 == 0 else round(chance.uniform(4, 70), 2) for i in range(rows)],
            "tags": [["shared"] if i % 5 == 0 else [] for i in range(rows)],
        },
        pa.schema(
            [
                pa.field("cab", pa.int64(), nullable=False),
                pa.field("pickup", pa.int64(), nullable=False),
                pa.field("zone", pa.string(), nullable=False),
                pa.field("distance", pa.float64(), nullable=False),
                pa.field("fare", pa.float64()),
                pa.field("tags", pa.list_(pa.field("element", pa.string())), nullable=False),
            ]
        ),
    )


def _readings() -> pa.RecordBatch:
    pairs = [(city, hour) for city in _CITIES for hour in range(24)]
    return pa.RecordBatch.from_pydict(
        {
            "city": [city for city, _ in pairs],
            "hour": [hour for _, hour in pairs],
            "celsius": [
                round(8.0 + 3.5 * _CITIES.index(c) - abs(14 - h) * 0.7, 1) for c, h in pairs
            ],
        }
    )


def _record_jobs(instance: Instance, trips: TableId, readings: TableId) -> None:
    """Records jobs of the hour before, such as a deployed instance runs."""
    chance = random.Random(7)
    for number in range(14):
        start = START_MS - 55 * _MINUTE_MS + number * 4 * _MINUTE_MS
        seconds = chance.randrange(20, 200)
        table = readings if number % 4 == 3 else trips
        reason = "file part-0009.parquet: column 'fare' has type string (expected double)"
        failure = reason if number == 9 else None
        _record(instance, table, f"load-{number:02}", JobKind.INGEST, start, seconds, failure)
        _record(
            instance,
            trips,
            f"compact-{number:02}",
            JobKind.COMPACTION,
            start + 70_000,
            seconds + chance.randrange(30, 240),
        )
    for number in range(3):
        start = START_MS - 40 * _MINUTE_MS + number * 15 * _MINUTE_MS
        _record(instance, trips, f"erase-{number}", JobKind.DELETION, start, 12)
    _record(instance, trips, "import-1", JobKind.BULK_IMPORT, START_MS - 50 * _MINUTE_MS, 1300)
    task = TaskEvent("task-1", "ingest", TaskStep.STARTED, START_MS - 56 * _MINUTE_MS, "host-1")
    instance.jobs.tasks.record(task)
    instance.jobs.tasks.record(
        TaskEvent("task-1", "ingest", TaskStep.ENDED, START_MS, "host-1", 31, 800_000, 799_000)
    )


def _record(
    instance: Instance,
    table: TableId,
    job: str,
    kind: JobKind,
    start_ms: int,
    seconds: int,
    failure: str | None = None,
) -> None:
    end_ms, rows, run = start_ms + 1000 * seconds, seconds * 1_250, f"run-{job}"
    events = [
        JobEvent(table, job, kind, JobStep.CREATED, start_ms - 900, inputs=4),
        JobEvent(table, job, kind, JobStep.STARTED, start_ms, run, "task-1"),
    ]
    if failure is not None:
        events.append(
            JobEvent(table, job, kind, JobStep.FAILED, end_ms, run, "task-1", reasons=(failure,))
        )
    else:
        finished = JobEvent(
            table,
            job,
            kind,
            JobStep.FINISHED,
            end_ms,
            run,
            "task-1",
            rows_read=rows,
            rows_written=rows,
        )
        committed = JobEvent(table, job, kind, JobStep.COMMITTED, end_ms, run, "task-1")
        events += [finished, committed]
    instance.jobs.tracker.record(*events)


def _add_followers(instance: Instance) -> None:
    state = instance.table("trips").state
    number = state.newest_number()
    for name, lag in (("dashboard", 0), ("warehouse", 2)):
        create_follower(instance, "trips", name, number - lag)
    state.advance_follower("dashboard", state.newest_number())


def _add_dead_letter(instance: Instance, clock: FakeClock) -> None:
    queue = instance.jobs.queue(QueueName.INGEST)
    job = {"id": "load-99", "tableName": "trips", "files": ["lost.parquet"]}
    numbers = "[9007199254740993, 12345678901234567.89, 1.10, -0, 1e5]"
    others = f', "keys": {numbers}, "a": {{}}, "b": "{{1, \\"2\\"}}"}}'
    queue.send(json.dumps(job)[:-1] + others)
    while not instance.jobs.dead_letters(QueueName.INGEST).list():
        queue.receive()
        clock.pass_minutes(16)
    instance.jobs.queue(QueueName.COMPACTION).send("{}")
