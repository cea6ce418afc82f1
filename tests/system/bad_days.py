"""An instance with one table, and how its tests look at it."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.admin.tables import create_table
from sleeper.ingest.service import submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobStatus
from sleeper.workers.worker import Worker

SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "StringType"}],'
    ' "valueFields": [{"name": "n", "type": "IntType"}]}'
)


def make_table(instance: Instance, points: tuple[str, ...] = (), **settings: str) -> None:
    """Creates table `rows`; settings omit the common prefix of property names."""
    values = {f"sleeper.table.{name.replace('_', '.')}": v for name, v in settings.items()}
    create_table(instance, "rows", SCHEMA, {"sleeper.table.gc.delay.minutes": "0"} | values, points)


def write(path: Path, rows: list[tuple[Any, Any]]) -> Path:
    """A Parquet file that fits the table, if the rows do."""
    columns = {"k": pa.array([r[0] for r in rows], pa.string()), "n": [r[1] for r in rows]}
    pq.write_table(pa.table(columns), path)
    return path


def run_all(instance: Instance) -> int:
    """Runs messages until none can be received; returns how many."""
    worker = Worker(instance, "task", threading.Event())
    count = 0
    while worker.run_one():
        count += 1
    return count


def submitted(instance: Instance, path: Path, job_id: str) -> JobStatus:
    """Submits the job, runs a worker, and returns the job's status."""
    submit_ingest(instance, "rows", [str(path)], job_id)
    run_all(instance)
    return instance.jobs.tracker.job(instance.table("rows").ref.id, job_id)


def count_rows(instance: Instance) -> Counter[tuple[str, int]]:
    """The rows that references stand for, read without the engine."""
    counts: Counter[tuple[str, int]] = Counter()
    with instance.table("rows").state.reading() as state:
        regions = {p.id: p.region for p in state.partitions.all()}
        for reference in state.files.references():
            table = pq.read_table(instance.storage.root.url_of(reference.path))
            region = regions[reference.partition_id]
            rows = zip(table.column("k").to_pylist(), table.column("n").to_pylist(), strict=True)
            counts.update(row for row in rows if region.contains(row[:1]))
    return counts


def assert_nothing_stays(instance: Instance) -> None:
    """Asserts that no file is assigned, no message waits, and no dead letter exists."""
    with instance.table("rows").state.reading() as state:
        assert state.jobs.count() == 0
    for name in QueueName:
        assert instance.jobs.queue(name).counts().unfinished == 0
        assert not instance.jobs.dead_letters(name).list()
