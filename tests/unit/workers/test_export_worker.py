"""The process that captures and drains the queues of a local instance."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import sleeper
from sleeper.export_queue import timed_exporter
from sleeper.export_queue import worker_process as export_worker
from sleeper.export_queue.definition import ExporterSettings, ExportQueue
from sleeper.export_queue.service import delete_queue
from sleeper.export_queue.store import open_export_store
from sleeper.export_queue.worker_process import ExportWorker
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.system.export_runs import wait_until
from tests.unit.export_queue.receiver import create_queue, define_queue
from tests.unit.export_queue.stored_queue import Export, Recorder, make_table_of_words, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance")
    with closing(open_local_instance(tmp_path / "instance")) as opened:
        yield opened


@pytest.fixture
def table(instance: Instance) -> sleeper.Table:
    return make_table_of_words(instance)


@pytest.fixture
def exporters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Recorder]:
    """The exporters by their text."""
    found = {text: Recorder() for text in ("null:", "null:first", "null:second")}

    def choose(_: Instance, queue: ExportQueue) -> Recorder:
        return found[queue.exporter.text]

    monkeypatch.setattr(timed_exporter, "open_exporter", choose)
    return found


@contextmanager
def working(instance: Instance) -> Iterator[list[bool]]:
    """Runs a worker in a thread. The list has its result after its end."""
    stop = threading.Event()
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(ExportWorker(instance, stop).run()))
    thread.start()
    try:
        yield results
    finally:
        stop.set()
        thread.join()


def test_queues_are_found_and_forgotten_while_it_runs(
    instance: Instance, table: sleeper.Table, exporters: dict[str, Recorder]
) -> None:
    with working(instance) as results:
        for name in ("first", "second"):
            queue = define_queue(
                table, "word", "count", name=name, exporter=ExporterSettings(f"null:{name}")
            )
            create_queue(instance, table.name, queue)
        table.ingest(rows_of(a=1))
        wait_until(lambda: len(exporters["null:first"].exports) == 1)
        wait_until(lambda: len(exporters["null:second"].exports) == 1)
        delete_queue(instance, "first", discard=True)
        table.ingest(rows_of(b=1))
        wait_until(lambda: len(exporters["null:second"].exports) == 2)
        wait_until(lambda: exporters["null:first"].closed == 1)
    assert results == [True]
    assert exporters["null:second"].closed >= 1
    assert len(exporters["null:first"].exports) == 1


def test_a_queue_of_an_earlier_name_is_another_queue(
    instance: Instance, table: sleeper.Table, exporters: dict[str, Recorder]
) -> None:
    with working(instance):
        for text in ("null:first", "null:second"):
            queue = define_queue(table, "word", "count", exporter=ExporterSettings(text))
            create_queue(instance, table.name, queue)
            table.ingest(rows_of(a=1))
            wait_until(lambda text=text: len(exporters[text].exports) == 1)  # type: ignore[misc]
            delete_queue(instance, "q", discard=True)


def test_a_call_that_does_not_return_ends_it_without_interrupting_other_calls(
    instance: Instance,
    table: sleeper.Table,
    exporters: dict[str, Recorder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(export_worker, "_SHORT_SECONDS", 0.01)
    released, slow = threading.Event(), threading.Event()

    def hang(_: Sequence[Export]) -> None:
        released.wait()

    def wait(_: Sequence[Export]) -> None:
        slow.wait()

    exporters["null:first"].before = hang
    exporters["null:second"].before = wait
    for name, seconds in (("first", 1), ("second", 60)):
        queue = define_queue(
            table,
            "word",
            "count",
            name=name,
            exporter=ExporterSettings(f"null:{name}"),
            timeout_seconds=seconds,
        )
        create_queue(instance, table.name, queue)
    store = open_export_store(instance)
    with working(instance) as results:
        table.ingest(rows_of(a=1))
        wait_until(lambda: any(each.failures for each in store.buckets("first")))
        assert results == []
        slow.set()
        wait_until(lambda: results == [False])
    released.set()
    assert store.counts("second").pending == 0
