"""Rows of exports as Arrow batches: their buckets, items, and the batches of exporters.

An *item* is the content of one stored object: exports of one bucket, of a bounded size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.key_runs import run_starts
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.errors import DataError
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.export_queue.store import NewItem
from sleeper.schema.model import Schema

_FIRST_COLUMNS = (
    pa.field(SEQUENCE, pa.int64(), nullable=False),
    pa.field(TOMBSTONE, pa.bool_(), nullable=False),
)


def rows_schema(queue: ExportQueue) -> pa.Schema:
    """Returns the Arrow schema of a queue's rows: `sequence`, `__gone`, keys, values."""
    return _rows_schema(queue.schema)


@lru_cache(maxsize=64)
def _rows_schema(schema: Schema) -> pa.Schema:
    return pa.schema([*_FIRST_COLUMNS, *arrow_schema(schema)])


def find_buckets(queue: ExportQueue, rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Returns each row's bucket: the hash of its key, unsigned, modulo the number of buckets.

    The hash is that of key filters, xxhash64 as Spark defines it, with seed 42.
    """
    return hash_rows(queue.schema, [rows]) % np.uint64(queue.buckets)


def encode_rows(rows: Sequence[pa.RecordBatch]) -> bytes:
    """Returns the content of an item: an Arrow IPC stream. Needs at least one batch."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows[0].schema, options=options) as writer:
        for batch in rows:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_rows(queue: ExportQueue, content: bytes) -> pa.RecordBatch:
    """Returns the rows of an item. DataError if it is damaged or of another schema."""
    try:
        with pa.ipc.open_stream(content) as reader:
            table = reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"export queue {queue.name!r}: damaged item: {error}") from error
    if table.schema != rows_schema(queue):
        raise DataError(
            f"export queue {queue.name!r}: an item has the columns {table.schema.names} "
            f"(expected {rows_schema(queue).names})"
        )
    combined = table.combine_chunks().to_batches()
    return combined[0] if combined else pa.RecordBatch.from_pylist([], schema=table.schema)


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
        for low, high in _divide(sizes, int(first), int(end), queue.buffer_bytes):
            name = f"{sequences[low]:020d}-{sequences[high - 1]:020d}"
            content = encode_rows([rows.slice(low, high - low)])
            yield NewItem(int(buckets[low]), name, high - low, content)


def _divide(
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


def newest_rows(queue: ExportQueue, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the last row of each key. The rows are in order of key and then sequence."""
    if rows.num_rows < 2:
        return rows
    is_last = np.zeros(rows.num_rows, np.bool_)
    is_last[-1] = True
    for key in queue.keys:
        column = rows.column(key.name)
        changes = pc.not_equal(column[:-1], column[1:])
        is_last[:-1] |= changes.to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(is_last))


def leave_out(rows: pa.RecordBatch, refused: Mapping[int, str]) -> pa.RecordBatch:
    """Returns the rows without those at the positions."""
    if not refused:
        return rows
    is_kept = np.ones(rows.num_rows, np.bool_)
    is_kept[list(refused)] = False
    return rows.filter(pa.array(is_kept))
