"""Finds the exports that a receiver refuses, by calls with ever smaller parts of a batch."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sleeper.errors import DataError
from sleeper.export_queue.definition import SEQUENCE, ExportQueue
from sleeper.export_queue.exporter import RefusedExportsError
from sleeper.export_queue.failures import describe_bucket, describe_failure, is_refusal, shorten
from sleeper.export_queue.rows import decode_rows, encode_rows
from sleeper.export_queue.store import NewDeadLetter, PendingItem

_REASONS_MAX = 50


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows that the receiver refused for the reason."""

    rows: pa.RecordBatch
    reason: str


class Budget:
    """Limits the isolation of an item, so that it ends if a receiver refuses everything."""

    def __init__(self, calls: int = 1_000, seconds: float = 300.0) -> None:
        self._calls = calls
        self._deadline = time.monotonic() + seconds

    def spend(self) -> bool:
        """Takes one call. Returns False if none is left."""
        self._calls -= 1
        return self._calls >= 0 and time.monotonic() < self._deadline


class FailedCallError(Exception):
    """A call failed with the error, or there was none because items could not be read."""

    def __init__(self, error: Exception, rows: pa.RecordBatch | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows


def isolate(
    call: Callable[[pa.RecordBatch], Exception | None],
    rows: pa.RecordBatch,
    budget: Budget,
    refusal: Exception | None = None,
) -> list[RefusedRows]:
    """Exports the rows except those that are refused, and returns these.

    `call` exports rows and returns the error if that fails. Refused rows are halved until each is
    alone or the budget is spent. `refusal` is that of a call with all rows that was made.
    FailedCallError if an error is no refusal; some rows have been exported then.
    """
    waiting = [(rows, "")]
    refused: list[RefusedRows] = []
    while waiting:
        part, reason = waiting.pop()
        if not budget.spend():
            refused.append(RefusedRows(part, f"{reason} (or another of these exports was refused)"))
            continue
        error, refusal = refusal or call(part), None
        if isinstance(error, RefusedExportsError):
            refused += select_refused(part, error.reasons)
        elif error is not None:
            if not is_refusal(error):
                raise FailedCallError(error, part)
            reason = describe_failure(error)
            half = part.num_rows // 2
            if half == 0:
                refused.append(RefusedRows(part, reason))
            else:
                waiting += [(part.slice(half), reason), (part.slice(0, half), reason)]
    return refused


def select_refused(rows: pa.RecordBatch, reasons: Mapping[int, str]) -> list[RefusedRows]:
    """Returns the rows at the positions, those of one reason together.

    All rows if there is no position, or one is outside of the batch.
    """
    if not reasons or not all(0 <= position < rows.num_rows for position in reasons):
        return [RefusedRows(rows, f"refused at invalid positions: {sorted(reasons)[:10]}")]
    groups: dict[str, list[int]] = {}
    for position, reason in sorted(reasons.items()):
        groups.setdefault(reason, []).append(position)
    return [RefusedRows(rows.take(pa.array(each)), reason) for reason, each in groups.items()]


def reject_rows(
    queue: ExportQueue, bucket: int, refused: Sequence[RefusedRows]
) -> list[NewDeadLetter]:
    """Returns a dead letter for each reason, and one for all reasons above the maximum number."""
    groups: dict[str, list[pa.RecordBatch]] = {}
    other = ""
    for each in refused:
        reason = shorten(each.reason)
        if len(groups) >= _REASONS_MAX and reason not in groups:
            reason = other = other or f"{reason} (or another reason)"
        groups.setdefault(reason, []).append(each.rows)
    rejected = []
    for reason, batches in groups.items():
        rows = pa.concat_batches(batches)
        # As an item again, it comes before items with later exports.
        first = int(np.min(rows.column(SEQUENCE).to_numpy()))
        dead_id = f"{max(first - 1, 0):020d}-{secrets.token_hex(6)}"
        error = f"{describe_bucket(queue, bucket, rows)}: {reason}"
        rejected.append(NewDeadLetter(dead_id, rows.num_rows, encode_rows([rows]), error))
    return rejected


def reject_item(queue: ExportQueue, bucket: int, item: PendingItem, reason: str) -> NewDeadLetter:
    """Returns a whole item as a dead letter. One that is damaged has its damage as the reason."""
    rows = None
    try:
        rows = decode_rows(queue, item.content)
    except DataError as error:
        reason = str(error)
    text = f"{describe_bucket(queue, bucket, rows)}: {reason}"
    return NewDeadLetter(item.id, item.exports, item.content, text)
