"""Cuts exports into items: those of one bucket, of a bounded size."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.rows import encode_rows, find_buckets, rows_schema
from sleeper.jobs.export_store import NewItem

_DIGEST_BYTES = 6


def make_items(
    queue: ExportQueue, start: int, exports: Sequence[pa.RecordBatch]
) -> Iterator[NewItem]:
    """Yields items of at most the queue's buffer size; a larger export is one alone.

    `start` is the position after which the step began. Ids begin with it and the number of the
    part, so that they ascend. They end with a digest of the content: items with one id are equal,
    so a worker which repeats a step never replaces an item that is being exported by one that has
    more exports.
    """
    rows = pa.Table.from_batches(exports, schema=rows_schema(queue)).combine_chunks()
    if not rows.num_rows:
        return
    buckets = find_buckets(queue, rows.to_batches()[0])
    order = np.argsort(buckets, kind="stable")
    rows = rows.take(pa.array(order)).combine_chunks().to_batches()[0]
    buckets = buckets[order]
    sizes = _row_bytes(rows)
    starts = np.flatnonzero(np.append([True], buckets[1:] != buckets[:-1]))
    ends = np.append(starts[1:], len(buckets))
    for first, end in zip(starts, ends, strict=True):
        for part, (low, high) in enumerate(_cut(sizes, int(first), int(end), queue.buffer_bytes)):
            content = encode_rows([rows.slice(low, high - low)])
            digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
            name = f"{start:020d}-{part:06d}-{digest}"
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
