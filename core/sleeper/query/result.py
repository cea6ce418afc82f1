"""The rows of a query as a stream, and its time limit."""

import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import QUERY_ROWS_MAX, QUERY_SECONDS_MAX
from sleeper.query.hold import VersionHold
from sleeper.tracing import NO_SPAN, Span


class QueryResult:
    """A stream of record batches with exactly the schema `schema`.

    It can be iterated once, and must be closed after a partial iteration; it is a context manager.
    Holds keep the version if there is more than one batch. Where they could not be created,
    iteration raises `StateMovedOnError` if garbage collection deletes a file. It raises
    `InvalidRequestError` after a close before the last row.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        holds: Sequence[VersionHold],
        rows_max: int = 0,
    ) -> None:
        self.schema = schema
        self._batches = batches
        self._holds = holds
        self._rows_max = rows_max
        self._rows = 0
        self._is_complete = False
        self.is_closed = False
        self._span = NO_SPAN
        self._finalizer: weakref.finalize[..., QueryResult] | None = None
        if holds:
            self._finalizer = weakref.finalize(self, _release_in_background, tuple(holds))
            self._finalizer.atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self.is_closed and not self._is_complete:
            raise InvalidRequestError("the result of the query is closed (expected an open one)")
        try:
            batch = next(self._batches)
        except BaseException as error:
            self._is_complete = isinstance(error, StopIteration)
            self._end_span(error)
            self.close()
            raise
        self._rows += batch.num_rows
        if 0 < self._rows_max < self._rows:
            refusal = InvalidRequestError(
                f"the query returns more than {self._rows_max} rows, the maximum of "
                f"{QUERY_ROWS_MAX.name}"
            )
            self._end_span(refusal)
            self.close()
            raise refusal
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep_span(self, span: Span) -> Self:
        """Returns this result, whose end is that of the span."""
        self._span = span.keep()
        return self

    def close(self) -> None:
        """Stops the query and releases its version. Idempotent."""
        self.is_closed = True
        self._end_span()
        batches, self._batches = self._batches, iter(())
        closing = getattr(batches, "close", None)
        if closing is not None:
            closing()
        if self._finalizer is not None and self._finalizer.detach() is not None:
            for hold in self._holds:
                hold.release()

    def _end_span(self, error: BaseException | None = None) -> None:
        self._span.set("db.response.returned_rows", self._rows)
        self._span.end(error)

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the stream as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def read_all(self) -> pa.Table:
        """Reads all rows into memory."""
        with self:
            return pa.Table.from_batches(list(self), self.schema)


def prepend_batch(
    first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields the first batch, which was read before, then the others."""
    if first is not None:
        yield first
        yield from others


def _release_in_background(holds: tuple[VersionHold, ...]) -> None:
    for hold in holds:
        hold.release_in_background()


_STOP_CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time by which a query must end. 0 `seconds` means no limit.

    `property_name` is the name of the property that sets the limit. `stop_event` cancels the query.
    """

    seconds: int = 0
    start_seconds: float = 0.0
    property_name: str = QUERY_SECONDS_MAX.name
    stop_event: threading.Event | None = None

    @classmethod
    def from_now(cls, seconds: int) -> "TimeLimit":
        """Returns a limit that starts now."""
        return cls(seconds, time.monotonic())

    @property
    def seconds_left(self) -> float | None:
        """The remaining time; `None` without a limit."""
        if not self.seconds:
            return None
        return max(0.0, self.start_seconds + self.seconds - time.monotonic())

    @property
    def seconds_until_check(self) -> float | None:
        """The time until the next check; `None` if none is needed."""
        left = self.seconds_left
        if self.stop_event is None:
            return left
        return _STOP_CHECK_SECONDS if left is None else min(left, _STOP_CHECK_SECONDS)

    def check(self) -> None:
        """Raises `InvalidRequestError` if the limit is exceeded or the query was cancelled."""
        if self.stop_event is not None and self.stop_event.is_set():
            raise InvalidRequestError("the query was cancelled")
        if self.seconds_left == 0.0:
            raise InvalidRequestError(self.reason())

    def reason(self) -> str:
        """Returns the error message of a query that exceeds the limit."""
        return f"the query takes more than {self.seconds} s, the maximum of {self.property_name}"
