"""The memory and disk that the rows of one untrusted content may take.

A few bytes can stand for many rows: Arrow writes a column of nulls as its length only, compressed
zeros as almost nothing, and a long value of a dictionary once. So the size of rows is that of their
values as the table stores them in memory: it grows with each row and each cell, and a value that
rows share counts for each of them. It is checked before it is allocated, or, where only the data
tells, before more than a slice of it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.expanded_sizes import CELL_BYTES, expanded_bytes, is_compact
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Schema

SLICE_BYTES = 16 * 1024**2
"""The approximate size of the rows that are converted together."""
_SLICE_ROWS_MAX = 65_536
_MIB = 1024**2


class TooLargeError(InvalidRequestError):
    """A request, its rows or its response are larger than the limits allow."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The limits of the rows of one content.

    `memory_bytes_max` limits those in memory at once: of a content in memory, of a compressed batch
    of Arrow, or of one row. `bytes_max` limits all rows of a content. Both are sizes in memory.
    """

    memory_bytes_max: int = 64 * _MIB
    bytes_max: int = 16 * 1024 * _MIB


@dataclass(slots=True)
class RowBudget:
    """The limits of one content, and the size of its rows so far."""

    limits: RowLimits
    used_bytes: int = field(default=0, init=False)

    def check(self, size: int) -> None:
        """Raises `TooLargeError` if so many further bytes exceed the limit of the content."""
        if self.used_bytes + size > self.limits.bytes_max:
            raise TooLargeError(
                f"the rows take at least {self.used_bytes + size:,} bytes in memory (expected at "
                f"most {self.limits.bytes_max:,}: send fewer rows at once)"
            )

    def check_memory(self, size: int, what: str) -> None:
        """Raises `TooLargeError` if a part of the content is too large for the memory."""
        if size > self.limits.memory_bytes_max:
            raise TooLargeError(
                f"{what} takes {size:,} bytes in memory (expected at most "
                f"{self.limits.memory_bytes_max:,})"
            )

    def spend(self, size: int) -> None:
        """Adds to the size. Raises `TooLargeError` beyond the limit of the content."""
        self.check(size)
        self.used_bytes += size


@lru_cache(maxsize=256)
def row_bytes_min(schema: Schema) -> int:
    """Returns the least that a row of the table takes, whatever its values."""
    return sum(max(CELL_BYTES, _fixed_bytes(field.type)) for field in arrow_schema(schema))


def _fixed_bytes(kind: pa.DataType) -> int:
    is_fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return -(-int(kind.bit_width) // 8) if is_fixed else 0


def slice_rows_max(schema: Schema) -> int:
    """Returns the number of rows without long values that are converted together."""
    return max(1, SLICE_BYTES // row_bytes_min(schema))


def slice_batch(
    batch: pa.RecordBatch, schema: Schema, budget: RowBudget | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a valid batch in slices that take few megabytes as rows of the table.

    `TooLargeError` if one row exceeds the budget.
    """
    least = row_bytes_min(schema)
    is_plain = not any(map(is_compact, batch.schema.types))
    if is_plain and batch.num_rows * least + batch.nbytes <= SLICE_BYTES:
        yield batch
        return
    for start in range(0, batch.num_rows, _SLICE_ROWS_MAX):
        part = batch.slice(start, _SLICE_ROWS_MAX)
        sizes = np.full(part.num_rows, least, np.int64)
        for column in part.columns:
            sizes += expanded_bytes(column)
        if budget is not None:
            budget.check_memory(int(sizes.max(initial=0)), "a row")
        for first, stop in _spans(np.cumsum(sizes)):
            yield part.slice(first, stop - first)


def _spans(ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yields consecutive spans of rows of about the bytes of a slice. `ends` are running sums."""
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        stop = max(int(np.searchsorted(ends, before + SLICE_BYTES, "right")), first + 1)
        yield first, stop
        first = stop
