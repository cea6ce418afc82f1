"""Whether queues have work left that a worker will do."""

import secrets
from collections.abc import Callable

import pytest

import sleeper
from sleeper.export_queue import progress
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.progress import ExportWatch
from sleeper.export_queue.store import open_export_store
from sleeper.instance import Instance
from sleeper.workers.companion import CompanionWork
from tests.unit.export_queue.receiver import create_queue, define_queue
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of

UNAVAILABLE = "bucket 0: receiver unavailable: no answer"


@pytest.fixture
def table(instance: Instance) -> sleeper.Table:
    table = make_table_of_words(instance)
    create_queue(instance, table.name, define_queue(table, "word", "count", buckets=1))
    return table


@pytest.fixture
def fail(instance: Instance) -> Callable[[str, bool], None]:
    """Records a failure of the bucket."""

    def record(error: str, is_refusal: bool) -> None:
        store = open_export_store(instance)
        store.claim("q", 0, "me", 10)
        store.record_failure("q", 0, "me", error, is_refusal, instance.clock())

    return record


def test_an_instance_without_queues_has_no_work(instance: Instance) -> None:
    assert ExportWatch(instance).look() == CompanionWork()


def test_transactions_and_exports_are_work(instance: Instance, table: sleeper.Table) -> None:
    watch = ExportWatch(instance)
    assert not watch.look().is_busy
    table.ingest(rows_of(a=1))
    assert watch.look().is_busy
    capture_exports(instance, "q")
    work = watch.look()
    assert (len(work.positions), work.pending, work.is_busy) == (1, 1, True)


def test_a_transaction_between_two_looks_makes_them_differ(
    instance: Instance, table: sleeper.Table
) -> None:
    watch = ExportWatch(instance)
    before = watch.look()
    assert watch.look() == before
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    store = open_export_store(instance)
    store.claim("q", 0, "me", 10)
    store.settle("q", 0, "me", [item.id for item in store.read("q", 0, 1)])
    assert not watch.look().is_busy
    assert watch.look() != before


def test_exports_that_were_refused_are_work(
    instance: Instance, table: sleeper.Table, fail: Callable[[str, bool], None]
) -> None:
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    fail(UNAVAILABLE, True)  # a refusal, whatever its text
    assert ExportWatch(instance).look().is_busy


@pytest.mark.parametrize("error", [UNAVAILABLE, "bucket 0: the exporter did not return within 5 s"])
def test_exports_that_are_retried_without_limit_are_no_work_but_a_problem(
    instance: Instance, table: sleeper.Table, fail: Callable[[str, bool], None], error: str
) -> None:
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    fail(error, False)
    work = ExportWatch(instance).look()
    assert (work.is_busy, work.problems) == (False, (f"1 export pending: {error}",))


def test_a_paused_queue_has_no_work(instance: Instance, table: sleeper.Table) -> None:
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    open_export_store(instance).pause("q", True)
    work = ExportWatch(instance).look()
    assert (work.pending, work.is_busy, work.problems) == (1, False, ())


def test_a_queue_that_cannot_capture_is_named(
    instance: Instance,
    table: sleeper.Table,
    fail: Callable[[str, bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_STUCK_SECONDS", 0.0)
    table.ingest(rows_of(**{secrets.token_hex(500): n for n in range(3000)}))
    capture_exports(instance, "q")
    fail(UNAVAILABLE, False)
    instance.change_properties({"sleeper.export.queue.pending.bytes.max": "1M"})
    table.ingest(rows_of(b=1))
    watch = ExportWatch(instance)
    assert watch.look().is_busy
    work = watch.look()
    assert not work.is_busy
    assert work.problems[0] == f"3,000 exports pending: {UNAVAILABLE}"
    assert work.problems[1].startswith("export queue 'q': ")
    instance.change_properties({"sleeper.export.queue.pending.bytes.max": ""})
    capture_exports(instance, "q")
    assert len(watch.look().problems) == 1
