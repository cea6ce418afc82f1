"""The protocol of exporters, and the batches that they are given."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from sleeper.datafiles.json_python import python_rows
from sleeper.errors import SleeperError
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.instance import Instance


class SequencedExport(NamedTuple):
    """One export.

    `key` is the value of the key field, or a tuple if the queue has several. `value` maps the names
    of the value fields to their values; it is None if the key is gone. `sequence` is the number of
    the transaction: of two exports of a key the one with the larger number is newer.
    """

    key: Any
    value: dict[str, Any] | None
    sequence: int


@dataclass(frozen=True, slots=True)
class ExportBatch:
    """Exports of one bucket, in order of key and then sequence. Iterates over `SequencedExport`.

    `rows` has the columns `sequence` (int64) and `__gone` (bool), then the keys and the values of
    the queue's schema. No key has a sequence twice. It has at least one row.
    """

    queue: ExportQueue
    bucket: int
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[SequencedExport]:
        columns = self.rows.select([f.name for f in self.queue.keys]).to_pydict()
        keys = list(columns.values())
        chosen = zip(*keys, strict=True) if len(keys) > 1 else iter(keys[0])
        values = python_rows(self.rows.select([f.name for f in self.queue.values]))
        sequences = self.rows.column(SEQUENCE).to_pylist()
        tombstones = self.rows.column(TOMBSTONE).to_pylist()
        for key, value, sequence, is_tombstone in zip(
            chosen, values, sequences, tombstones, strict=True
        ):
            yield SequencedExport(key, None if is_tombstone else value, sequence)

    def to_arrow(self) -> pa.RecordBatch:
        """Returns the rows."""
        return self.rows


class RefusedExportsError(SleeperError):
    """The receiver has taken the batch except for some exports, which it refused.

    `reasons` maps their positions in the batch to the reasons.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        first = next(iter(reasons.values()), "")
        super().__init__(f"{len(reasons):,} exports were refused, the first: {first}")
        self.reasons = dict(reasons)


class Exporter(Protocol):
    """Sends exports to another system.

    `export` returns when the receiver has the whole batch. It may be called again with exports
    that it has sent before, alone or together with others, also after newer ones of their key: the
    receiver ignores an export if it has one of the key with a larger sequence number.

    A worker calls an exporter from one thread. After an error that means an unavailable receiver it
    closes the exporter and opens another one.

    `UnavailableError`, `ConnectionError` and `TimeoutError` mean that the receiver is
    unavailable: the batch waits and is tried again without limit. After any other error, the
    batch becomes a dead letter when it was tried as often as the queue allows; after
    `RefusedExportsError` only the refused exports do.
    """

    def export(self, batch: ExportBatch) -> None:
        """Sends a batch."""

    def close(self) -> None:
        """Closes connections."""


MakeExporter = Callable[[Instance, ExportQueue], Exporter]
"""Opens an exporter. InvalidRequestError if its settings are invalid."""
