"""Rows as JSON text in pages of a limited size."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import integer_array, text_scalar
from sleeper.datafiles.json_text import json_lines
from sleeper.errors import InvalidRequestError

# The closing bracket is counted as a comma.
_OPENING_BRACKET = 1


@dataclass(frozen=True, slots=True)
class JsonPage:
    """Rows as the text of a JSON array."""

    text: str
    rows: int


def json_pages(
    batches: Iterable[pa.RecordBatch], bytes_max: int, rows_max: int | None = None
) -> Iterator[JsonPage]:
    """Yields full pages of whole rows, none without rows.

    Raises `InvalidRequestError` for a row that is larger than a page.
    """
    kept: list[str] = []
    rows = size = 0
    for batch in batches:
        lines = json_lines(batch)
        # Each row has a comma or the closing bracket after it.
        ends = np.cumsum(pc.binary_length(lines).to_numpy().astype(np.int64) + 1)
        at = 0
        while at < len(lines):
            stop = _stop(
                ends, at, bytes_max - _OPENING_BRACKET - size, rows_max and rows_max - rows
            )
            if stop > at:
                kept.append(join_lines(lines.slice(at, stop - at), ",").as_py())
                size += int(ends[stop - 1] - (ends[at - 1] if at else 0))
                rows += stop - at
                at = stop
            elif kept:
                yield JsonPage(f"[{','.join(kept)}]", rows)
                kept, rows, size = [], 0, 0
            else:
                raise InvalidRequestError(
                    f"a row has {int(ends[at] - (ends[at - 1] if at else 0)) - 1:,} bytes as "
                    f"JSON (maximum {bytes_max:,} per page)"
                )
    if kept:
        yield JsonPage(f"[{','.join(kept)}]", rows)


def _stop(ends: np.ndarray, at: int, room: int, rows: int | None) -> int:
    """Returns the end of the rows from `at` on that fit."""
    before = ends[at - 1] if at else 0
    stop = int(np.searchsorted(ends, before + room, side="right"))
    return min(stop, len(ends) if rows is None else at + rows)


def join_lines(lines: pa.Array, separator: str) -> pa.StringScalar:
    """Returns all lines as one text."""
    ends = integer_array(np.array([0, len(lines)], np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(ends, lines), text_scalar(separator))[0]
