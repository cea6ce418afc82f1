"""The rows of a query, as they come."""

import weakref
from collections.abc import Iterator, Sequence
from typing import Self

import pyarrow as pa

from sleeper.errors import InvalidRequestError
from sleeper.query.hold import VersionHold

_SECONDS_UNTIL_HOLD = 2.0


class QueryResult:
    """A stream of record batches of exactly `schema`.

    Iterate over it once, and close it if you stop early; it is a context manager.
    StateMovedOnError if a file is collected while rows are handed out, which a hold
    prevents for long queries.
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
        self._handed_out = 0
        self._finalizer = weakref.finalize(self, _let_go_soon, tuple(holds))
        self._finalizer.atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._batches)
        except BaseException:
            self.close()
            raise
        self._rows += batch.num_rows
        if 0 < self._rows_max < self._rows:
            self.close()
            raise InvalidRequestError(
                f"the query gives more than {self._rows_max} rows, which "
                "sleeper.query.rows.max does not allow"
            )
        self._handed_out += 1
        if self._handed_out == 2:
            # Most results are one batch; what goes on may go on for long.
            for hold in self._holds:
                hold.acquire_after(_SECONDS_UNTIL_HOLD)
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the query and lets its version go. May be called again."""
        batches, self._batches = self._batches, iter(())
        closing = getattr(batches, "close", None)
        if closing is not None:
            closing()
        if self._finalizer.detach() is not None:
            for hold in self._holds:
                hold.release()

    def to_reader(self) -> pa.RecordBatchReader:
        """The same stream as Arrow's own reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def read_all(self) -> pa.Table:
        """All rows in memory."""
        with self:
            return pa.Table.from_batches(list(self), self.schema)


def prepend_batch(
    first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A stream whose first batch was fetched already; None if there was none."""
    if first is not None:
        yield first
        yield from others


def _let_go_soon(holds: tuple[VersionHold, ...]) -> None:
    for hold in holds:
        hold.release_in_background()
