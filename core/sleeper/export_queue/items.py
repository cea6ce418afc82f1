"""Cuts exports into items: those of one bucket, of a bounded size."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.export_queue.definition import SEQUENCE, ExportQueue
from sleeper.export_queue.rows import encode_rows, find_buckets, rows_schema
from sleeper.jobs.export_store import NewItem


def make_items(queue: ExportQueue, exports: Sequence[pa.RecordBatch]) -> Iterator[NewItem]:
    """Yields items of at most the queue's buffer size; a larger export is one alone.

    The exports of a bucket are in order of their sequence. An id is the first and the last sequence
    of the item, so the items of a bucket are in this order too, also those of several steps.
    """
    rows = pa.Table.from_batches(exports, schema=rows_schema(queue)).combine_chunks()
    if not rows.num_rows:
        return
    buckets = find_buckets(queue, rows.to_batches()[0])
    # Stable. Rows of several small transactions are in order of their keys.
    order = np.lexsort((rows.column(SEQUENCE).to_numpy(), buckets))
    rows = rows.take(pa.array(order)).combine_chunks().to_batches()[0]
    buckets = buckets[order]
    sequences = rows.column(SEQUENCE).to_numpy()
    sizes = _row_bytes(rows)
    starts = np.flatnonzero(np.append([True], buckets[1:] != buckets[:-1]))
    ends = np.append(starts[1:], len(buckets))
    for first, end in zip(starts, ends, strict=True):
        for low, high in _cut(sizes, int(first), int(end), queue.buffer_bytes):
            name = f"{sequences[low]:020d}-{sequences[high - 1]:020d}"
            content = encode_rows([rows.slice(low, high - low)])
            yield NewItem(int(buckets[low]), name, high - low, content)


def _cut(
    sizes: npt.NDArray[np.int64], first: int, end: int, bytes_max: int
) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows of at most the size, or of one row."""
    totals = np.cumsum(sizes[first:end])
    start = 0
    while start < len(totals):
        before = totals[start - 1] if start else 0
        stop = max(int(np.searchsorted(totals, before + bytes_max, side="right")), start + 1)
        yield first + start, first + stop
        start = stop


def _row_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns the size of each row: exact for text and bytes, and the mean for lists and maps."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy() + 5
        else:
            sizes += -(-column.nbytes // rows.num_rows)
    return sizes
