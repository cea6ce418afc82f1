"""The log keeps exports that a queue has not captured."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import sleeper
from sleeper.clock import system_clock
from sleeper.export_queue.attached import AttachedExports
from sleeper.export_queue.definition import EXPORT_QUEUES, ExportSource
from sleeper.export_queue.store import open_export_store
from sleeper.export_queue.transactions import (
    CreateExportQueue,
    DeleteExportQueue,
)
from sleeper.garbage_collection.service import collect_table, snapshot_table
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock
from tests.unit.export_queue.receiver import Receiver, create_queue, define_queue
from tests.unit.export_queue.stored_queue import WORDS, make_table_of_words, rows_of

SNAPSHOTS = {
    "sleeper.table.type": "snapshot",
    "sleeper.table.snapshot.min.versions": "1",
    "sleeper.table.gc.delay.minutes": "0",
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(system_clock())


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance")
    with closing(open_local_instance(tmp_path / "instance", clock)) as opened:
        yield opened


def test_exports_of_a_snapshot_table_survive_expiry_and_trimming(
    instance: Instance, clock: FakeClock
) -> None:
    table = sleeper.Instance(instance).create_table("words", WORDS, SNAPSHOTS)
    queue = define_queue(table, "word", "count", ExportSource.TRANSACTION)
    create_queue(instance, "words", queue)
    with table.transaction() as transaction:
        transaction.export("q", "a", 1)
    for n in range(4):
        table.ingest(rows_of(b=n))
        clock.pass_minutes(1)
        table.expire_snapshots()
        clock.pass_minutes(1)
        collect_table(instance, "words")
        snapshot_table(instance, instance.tables.index.find("words"), always=True)
    receiver = Receiver(instance, queue)
    report = receiver.take()
    assert (report.is_complete, report.problem) == (True, None)
    assert receiver.rows == {("a",): (1,)}


def test_exports_to_an_earlier_queue_of_the_name_are_left_out(instance: Instance) -> None:
    table = make_table_of_words(instance)
    queue = define_queue(table, "word", "count", ExportSource.TRANSACTION)
    create_queue(instance, "words", queue)
    state = instance.table("words").state
    with state.reading() as now:
        attached = AttachedExports(now)
    attached.add("q", "a", 1)
    logged = attached.change("earlier")
    assert logged is not None
    definition = EXPORT_QUEUES.format(queue)
    created = CreateExportQueue("q", queue.source.value, definition)
    # All are one entry of the log, before which the new queue begins.
    state.commit(logged, DeleteExportQueue("q"), created)
    open_export_store(instance).remove("q")
    create_queue(instance, "words", queue)
    assert Receiver(instance, queue).take().exports == 0
