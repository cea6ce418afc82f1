"""A queue of a table, and a receiver that has the newest export of each key."""

from dataclasses import dataclass, field
from typing import Any

import sleeper
from sleeper.export_queue.capture import CaptureReport, capture_exports, first_position
from sleeper.export_queue.definition import (
    EXPORT_QUEUES,
    ExporterSettings,
    ExportQueue,
    ExportSource,
)
from sleeper.export_queue.rows import decode_rows
from sleeper.export_queue.store import open_export_store
from sleeper.export_queue.table_queries import queues_in
from sleeper.export_queue.transactions import CreateExportQueue
from sleeper.instance import Instance
from sleeper.schema.model import Field

Key = tuple[Any, ...]


def define_queue(
    table: sleeper.Table,
    keys: str,
    values: str = "",
    source: ExportSource = ExportSource.INGEST,
    name: str = "q",
    **more: Any,
) -> ExportQueue:
    """Returns a queue of fields of the table, named as `a,b`."""

    def find(names: str) -> tuple[Field, ...]:
        found = [table.schema.field(each) for each in names.split(",") if each]
        return tuple(Field(each.name, each.type) for each in found)

    more.setdefault("exporter", ExporterSettings("null:"))
    return ExportQueue(name, source, find(keys), find(values), **more)


def create_queue(instance: Instance, table_name: str, queue: ExportQueue) -> int:
    """Creates the queue. Returns its generation."""
    table = instance.table(table_name)
    store = open_export_store(instance)
    store.register(queue.name, str(table.ref.id))
    definition = EXPORT_QUEUES.format(queue)
    table.state.commit(CreateExportQueue(queue.name, queue.source.value, definition))
    with table.state.reading() as state:
        stored = queues_in(state).find(queue.name)
    store.begin(queue.name, stored.generation, first_position(queue, stored))
    return stored.generation


@dataclass
class Receiver:
    """Takes all exports of a queue, and ignores those that are older than what it has.

    `exports` are all that it received, as (sequence, key, values or None), in order.
    """

    instance: Instance
    queue: ExportQueue
    exports: list[tuple[int, Key, Key | None]] = field(default_factory=list)
    newest: dict[Key, tuple[int, Key | None]] = field(default_factory=dict)

    def take(self, seconds_max: float | None = None) -> CaptureReport:
        """Captures exports and receives them."""
        report = capture_exports(self.instance, self.queue.name, seconds_max)
        self.receive()
        return report

    def receive(self) -> None:
        """Receives the exports that wait."""
        store, name = open_export_store(self.instance), self.queue.name
        for status in store.buckets(name):
            assert store.claim(name, status.bucket, "receiver", 60)
            items = store.read(name, status.bucket, 2**40)
            for item in items:
                rows = decode_rows(self.queue, item.content)
                assert rows.num_rows == item.exports
                for row in rows.to_pylist():
                    self._apply(row)
            store.settle(name, status.bucket, "receiver", [item.id for item in items])
            store.release(name, status.bucket, "receiver")

    def _apply(self, row: dict[str, Any]) -> None:
        sequence, gone, *cells = row.values()
        count = len(self.queue.keys)
        key, values = tuple(cells[:count]), None if gone else tuple(cells[count:])
        assert values is not None or not any(cells[count:])
        self.exports.append((sequence, key, values))
        if self.newest.get(key, (0, None))[0] <= sequence:
            self.newest[key] = (sequence, values)

    @property
    def rows(self) -> dict[Key, Key]:
        """The newest values by key, without keys that are gone."""
        return {key: values for key, (_, values) in self.newest.items() if values is not None}
