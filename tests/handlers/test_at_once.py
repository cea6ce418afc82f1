"""Concurrent handlers for messages of one group, which FIFO queues rarely deliver."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sleeper.api import Instance as OpenInstance
from sleeper.compaction.plan import create_table_jobs
from sleeper.garbage_collection.service import (
    run_garbage_collection,
    run_orphan_collection,
    snapshot_table,
)
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.local.instance import open_local_instance
from sleeper.splitting.find import send_new_splits
from sleeper.splitting.service import run_split_message
from sleeper.tables import TableRef
from sleeper.workers.worker import Worker
from tests.handlers.conftest import add_rows, make_table

AT_ONCE = 3
KEYS = 60


@pytest.fixture
def table(instance: Instance) -> TableRef:
    """Over the threshold, with files to compact."""
    instance.change_properties({"sleeper.snapshot.transactions.min": "1"})
    ref = make_table(
        instance,
        "t",
        partition_splitting_threshold="20",
        gc_delay_minutes="0",
        compaction_strategy_class="BasicCompactionStrategy",
        compaction_files_batch_size="2",
    )
    for start in range(6):
        add_rows(instance, "t", *range(start, KEYS, 6))
    return ref


def run_concurrently(instance: Instance, action: Callable[[Instance], object]) -> None:
    """Runs the action at the same time in several processes' views of the instance."""
    barrier = threading.Barrier(AT_ONCE)

    def run(_: int) -> None:
        own = open_local_instance(Path(instance.where))
        try:
            barrier.wait()
            action(own)
        finally:
            own.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, range(AT_ONCE)))


def work_off(instance: Instance) -> None:
    worker = Worker(instance, new_task_id(), threading.Event())
    while worker.run_one():
        pass


def test_operations_that_run_at_once_do_no_harm(instance: Instance, table: TableRef) -> None:
    run_concurrently(instance, lambda own: send_new_splits(own, table))
    run_concurrently(instance, lambda own: _split_all(own))
    for _ in range(3):
        run_concurrently(instance, lambda own: create_table_jobs(own, table))
        work_off(instance)
        run_concurrently(instance, lambda own: run_garbage_collection(own, table))
        run_concurrently(instance, lambda own: run_orphan_collection(own, table))
        run_concurrently(instance, lambda own: snapshot_table(own, table))
    with instance.tables.state(table.id).reading() as state:
        totals = state.files.totals()
        assert state.jobs.count() == 0
    assert (totals.rows, totals.leaves, totals.unreferenced_files) == (KEYS, 4, 0)
    assert {job.state for job in instance.jobs.tracker.recent(JobKind.COMPACTION)} == {
        JobState.COMMITTED
    }
    assert instance.jobs.queue(QueueName.COMPACTION).counts().dead == 0
    keys = OpenInstance(instance).table("t").query().to_arrow()["k"].to_pylist()
    assert keys == list(range(KEYS))


def _split_all(own: Instance) -> None:
    queue = own.jobs.queue(QueueName.SPLITTING)
    while messages := queue.receive(10):
        for message in messages:
            for _again in range(2):
                run_split_message(own, message.body)
            queue.delete(message.receipt)
