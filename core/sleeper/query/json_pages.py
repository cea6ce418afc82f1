"""Rows as JSON arrays of at most so many bytes, for messages and frames."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import InvalidRequestError
from sleeper.query.json_text import json_lines

# The closing one stands where a comma is counted.
_OPENING_BRACKET = 1


@dataclass(frozen=True, slots=True)
class JsonPage:
    """Rows as the text of a JSON array."""

    text: str
    rows: int


def json_pages(
    batches: Iterable[pa.RecordBatch], bytes_max: int, rows_max: int | None = None
) -> Iterator[JsonPage]:
    """Pages of whole rows, as full as they get. No page without rows.

    InvalidRequestError if a row alone does not fit.
    """
    kept: list[str] = []
    rows = size = 0
    for batch in batches:
        lines = json_lines(batch)
        # With the comma, or the closing bracket, behind each.
        ends = np.cumsum(pc.binary_length(lines).to_numpy().astype(np.int64) + 1)
        at = 0
        while at < len(lines):
            stop = _stop(
                ends, at, bytes_max - _OPENING_BRACKET - size, rows_max and rows_max - rows
            )
            if stop > at:
                kept.append(_joined(lines.slice(at, stop - at)))
                size += int(ends[stop - 1] - (ends[at - 1] if at else 0))
                rows += stop - at
                at = stop
            elif kept:
                yield JsonPage(f"[{','.join(kept)}]", rows)
                kept, rows, size = [], 0, 0
            else:
                raise InvalidRequestError(
                    f"a row takes {int(ends[at] - (ends[at - 1] if at else 0)) - 1:,} bytes as "
                    f"JSON: a page has room for {bytes_max:,}"
                )
    if kept:
        yield JsonPage(f"[{','.join(kept)}]", rows)


def _stop(ends: np.ndarray, at: int, room: int, rows: int | None) -> int:
    """Behind the last row from `at` on that still fits."""
    before = ends[at - 1] if at else 0
    stop = int(np.searchsorted(ends, before + room, side="right"))
    return min(stop, len(ends) if rows is None else at + rows)


def _joined(lines: pa.Array) -> str:
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return str(pc.binary_join(whole, ",")[0].as_py())
