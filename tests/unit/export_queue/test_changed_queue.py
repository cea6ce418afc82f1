"""A queue that is deleted and created again, or gets another exporter, while it is drained."""

from collections.abc import Callable

import pytest

import sleeper
from sleeper.export_queue import registration, timed_exporter
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.methods import ExportQueue as ApiQueue
from sleeper.instance import Instance
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of

TRIES_BEFORE, TRIES_AFTER = 3, 4


class Receivers:
    """Records each key with the tries of the definition that the exporter was opened with."""

    def __init__(self) -> None:
        self.received: list[tuple[int, str]] = []
        self.on_first_call: Callable[[], object] = lambda: None

    def open(self, _instance: Instance, queue: ExportQueue) -> "_Exporter":
        return _Exporter(self, queue.tries)


class _Exporter:
    def __init__(self, receivers: Receivers, tries: int) -> None:
        self._receivers, self._tries = receivers, tries

    def export(self, batch: ExportBatch) -> None:
        received = self._receivers.received
        received += [(self._tries, export.key) for export in batch]
        if len(received) == 1:
            self._receivers.on_first_call()

    def close(self) -> None: ...


@pytest.mark.parametrize("is_deleted", [True, False], ids=["created again", "replaced"])
def test_later_exports_go_to_the_exporter_of_the_new_definition(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    receivers = Receivers()
    monkeypatch.setattr(timed_exporter, "open_exporter", receivers.open)
    # A change of the exporter is noticed at once.
    monkeypatch.setattr(registration, "_LOOK_SECONDS", 60.0 if is_deleted else -1.0)
    table, api = make_table_of_words(instance), sleeper.Instance(instance)

    def create(tries: int, replace: bool = False) -> ApiQueue:
        return api.create_export_queue(
            "q", table.name, "ingest", "word", "count", tries=tries, buckets=1, replace=replace
        )

    def change() -> None:
        if is_deleted:
            queue.delete(discard=True)
        create(TRIES_AFTER, replace=not is_deleted)
        table.ingest(rows_of(later=1))
        capture_exports(instance, "q")

    receivers.on_first_call = change
    queue = create(TRIES_BEFORE)
    table.ingest(rows_of(earlier=1))
    queue.drain()
    assert receivers.received == [(TRIES_BEFORE, "earlier")]
    queue.drain()
    assert receivers.received[1:] == [(TRIES_AFTER, "later")]
