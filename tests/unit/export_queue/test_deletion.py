"""Deletions of queues, and those that a process which died did not finish."""

from collections.abc import Callable
from typing import Never

import pytest

import sleeper
from sleeper.errors import NotFoundError
from sleeper.export_queue import registration
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.follow import follow_all
from sleeper.export_queue.local.store import LocalExportStore
from sleeper.export_queue.progress import ExportWatch
from sleeper.export_queue.service import delete_queue
from sleeper.export_queue.store import Position, open_export_store
from sleeper.export_queue.transactions import DeleteExportQueue
from sleeper.instance import Instance
from tests.unit.export_queue.receiver import create_queue, define_queue
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of

Finish = Callable[[Instance], object]


@pytest.fixture
def table(instance: Instance) -> sleeper.Table:
    """A table, whose queue has an export."""
    table = make_table_of_words(instance)
    create_queue(instance, table.name, define_queue(table, "word", "count", buckets=1))
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    return table


def interrupt_deletion(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes the queue in a process that dies after its commit."""

    def die(*_arguments: object) -> Never:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LocalExportStore, "remove", die)
        with pytest.raises(KeyboardInterrupt):
            delete_queue(instance, "q", discard=True)


def left(instance: Instance) -> list[str]:
    return [each.name for each in open_export_store(instance).list()]


@pytest.mark.parametrize(
    "finish",
    [
        lambda instance: ExportWatch(instance).look(),
        follow_all,
        lambda instance: delete_queue(instance, "q"),
    ],
    ids=["sleeper run", "the schedule on AWS", "another deletion"],
)
def test_an_interrupted_deletion_is_finished(
    instance: Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch, finish: Finish
) -> None:
    interrupt_deletion(instance, monkeypatch)
    assert left(instance) == ["q"]
    finish(instance)
    assert left(instance) == []
    create_queue(instance, table.name, define_queue(table, "word", "count", buckets=1))
    assert open_export_store(instance).counts("q").pending == 0


def test_a_queue_is_kept_while_its_table_has_it_or_is_not_active(
    instance: Instance, table: sleeper.Table
) -> None:
    open_export_store(instance).register("early", instance.table(table.name).ref.id)
    open_export_store(instance).register("orphan", "0123abcd")
    open_export_store(instance).begin("orphan", 1, Position(1))
    for name in ("early", "orphan", "q", "other"):
        assert not registration.finish_interrupted_deletion(instance, name)
    assert left(instance) == ["early", "orphan", "q"]


def test_a_queue_that_was_created_again_meanwhile_is_kept(
    instance: Instance, table: sleeper.Table
) -> None:
    store, state = open_export_store(instance), instance.table(table.name).state
    before = store.find("q")
    state.commit(DeleteExportQueue("q"))
    store.remove("q", before.generation)
    create_queue(instance, table.name, define_queue(table, "word", "count", buckets=1))
    assert not registration.finish_deletion(instance, before)
    store.remove("q", before.generation)
    assert store.find("q").generation > before.generation
    store.remove("q", store.find("q").generation)
    with pytest.raises(NotFoundError):
        store.find("q")
