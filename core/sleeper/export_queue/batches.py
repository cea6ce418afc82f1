"""Batches for exporters: the rows of items in order, and parts of limited size."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.merge.key_runs import run_starts
from sleeper.errors import DataError
from sleeper.export_queue.definition import SEQUENCE, ExportQueue
from sleeper.export_queue.rows import decode_rows


def merge_items(
    queue: ExportQueue, contents: Iterable[bytes], bytes_max: int | None = None
) -> pa.RecordBatch:
    """Returns the rows of items in order of key and then sequence.

    Of rows with the same key and sequence it keeps that of the last item. DataError if an item is
    damaged, or the rows have more bytes in memory.
    """
    items, size = [], 0
    for content in contents:
        items.append(decode_rows(queue, content))
        size += items[-1].nbytes
        if bytes_max is not None and size > bytes_max:
            raise DataError(f"more than {bytes_max:,} bytes in memory")
    rows = pa.concat_batches(items)
    names = [*(field.name for field in queue.keys), SEQUENCE]
    # The sort is stable, so rows of later items follow those of earlier ones.
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    rows = rows.take(order)
    starts = run_starts([rows.column(name) for name in names])
    if len(starts) == rows.num_rows:
        return rows
    ends = np.append(starts[1:], rows.num_rows) - 1
    return rows.take(pa.array(ends))


def split_rows(rows: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows in parts of at most the size in memory, or of one row that is larger."""
    start = 0
    while start < rows.num_rows:
        count = _fitting_rows(rows.slice(start), bytes_max)
        yield rows.slice(start, count)
        start += count


def _fitting_rows(rows: pa.RecordBatch, bytes_max: int) -> int:
    """Returns the number of first rows that fit, at least one, by bisection."""
    if rows.nbytes <= bytes_max:
        return int(rows.num_rows)
    fits, too_many = 1, int(rows.num_rows)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if rows.slice(0, middle).nbytes <= bytes_max:
            fits = middle
        else:
            too_many = middle
    return fits
