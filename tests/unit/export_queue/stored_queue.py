"""A registered queue with exports in a local instance's storage, and exporters for tests."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import sleeper
from sleeper.export_queue.definition import ExporterSettings, ExportQueue, ExportSource
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.rows import encode_rows, find_buckets, rows_schema
from sleeper.export_queue.store import ExportStore, NewItem, Position, open_export_store
from sleeper.instance import Instance
from sleeper.schema.model import Field, PrimitiveType

Export = tuple[str, int | None, int]
"""A key, a value, which is None for a key that is gone, and a sequence number."""

QUEUE = ExportQueue(
    "counts",
    ExportSource.INGEST,
    (Field("word", PrimitiveType.STRING),),
    (Field("count", PrimitiveType.LONG),),
    ExporterSettings("null:"),
    buckets=4,
    tries=3,
)

GENERATION = 1

WORDS = (
    '{"rowKeyFields": [{"name": "word", "type": "StringType"}],'
    ' "valueFields": [{"name": "count", "type": "LongType"}]}'
)


def make_rows(exports: Iterable[Export]) -> pa.RecordBatch:
    """Returns the rows of exports."""
    return pa.RecordBatch.from_pylist(
        [
            {"sequence": sequence, "__gone": value is None, "word": key, "count": value}
            for key, value, sequence in exports
        ],
        schema=rows_schema(QUEUE),
    )


@dataclass
class StoredQueue:
    """A queue in the storage of an instance, without a table."""

    instance: Instance
    queue: ExportQueue = QUEUE
    _items: int = 0

    def __post_init__(self) -> None:
        self.store.register(self.queue.name, "0123abcd")
        self.store.begin(self.queue.name, GENERATION, Position(1))

    @property
    def store(self) -> ExportStore:
        return open_export_store(self.instance)

    def change(self, **changes: Any) -> None:
        """Changes the definition, not the storage."""
        self.queue = replace(self.queue, **changes)

    def add(self, *exports: Export, bucket: int | None = None) -> None:
        """Stores exports as an item of each bucket, or of the given one."""
        rows = make_rows(exports)
        numbers = find_buckets(self.queue, rows)
        for number in {int(n) for n in numbers} if bucket is None else (bucket,):
            chosen = rows if bucket is not None else rows.filter(pa.array(numbers == number))
            self.add_content(number, chosen.num_rows, encode_rows([chosen]))

    def add_content(self, bucket: int, exports: int, content: bytes) -> None:
        """Stores an item."""
        self._items += 1
        item = NewItem(bucket, f"{self._items:020d}-000000", exports, content)
        self.store.add(self.queue.name, GENERATION, [item], Position(self._items + 1))

    @property
    def pending(self) -> int:
        return self.store.counts(self.queue.name).pending

    def bucket_of(self, key: str) -> int:
        """Returns the bucket of a key."""
        return int(find_buckets(self.queue, make_rows([(key, 0, 0)]))[0])


def exports_of(batch: ExportBatch) -> list[Export]:
    """Returns the exports of a batch."""
    return [(e.key, None if e.value is None else e.value["count"], e.sequence) for e in batch]


@dataclass
class Recorder:
    """An exporter that records its calls. `before` is called with a call's exports before it."""

    before: Callable[[Sequence[Export]], object] = lambda _: None
    batches: list[list[Export]] = field(default_factory=list)
    closed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def export(self, batch: ExportBatch) -> None:
        exports = exports_of(batch)
        self.before(exports)
        with self.lock:
            self.batches.append(exports)

    def close(self) -> None:
        self.closed += 1

    @property
    def exports(self) -> list[Export]:
        return [export for batch in self.batches for export in batch]


def make_table_of_words(instance: Instance) -> sleeper.Table:
    """Creates a table with the fields of the queue."""
    return sleeper.Instance(instance).create_table("words", WORDS)


def rows_of(**counts: int) -> pa.Table:
    """Returns rows of the table of words."""
    return pa.table({"word": list(counts), "count": list(counts.values())})
