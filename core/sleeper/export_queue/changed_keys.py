"""The rows of one transaction by key: the newest row of each, or that the key is gone.

The rows of a large transaction do not fit into memory. They are first divided by the *slot* of
their key, which is the bucket and the upper half of the hash, into files on local disk. Each file
holds whole keys, and is divided again if it is too large.
"""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.engine.settings import EngineSettings, make_spill_folder
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.errors import UnavailableError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.rows import rows_schema
from sleeper.schema.model import NUMBER_COLUMN

_RANK = "__rank"
_ROW = "__row"
MEMORY_BYTES = 32 * 1024**2
"""The size of the rows in memory at once."""

_CHUNK_BYTES = 4 * 1024**2
_PARTS = 32
_SLOT_BITS = 32

Slots = npt.NDArray[np.uint64]


class Rank(IntEnum):
    """What a row tells of its key. Of the rows of a key the last of the highest rank is exported.

    - FORMER: the key had a row before. It is gone if no other row has it.
    - REMAINING: the table has the row. It matters only if the key had a former row.
    - NEW: the transaction wrote the row.
    """

    FORMER = 0
    REMAINING = 1
    NEW = 2


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Exports of the keys of buckets below `bucket`, and part of those of that bucket."""

    rows: pa.RecordBatch
    bucket: int


class ChangedKeys:
    """Gathers the rows of one transaction, in table order for each rank. A context manager.

    Keys of buckets below `first_bucket` are left out.
    """

    def __init__(
        self,
        queue: ExportQueue,
        sequence: int,
        engine: EngineSettings,
        first_bucket: int = 0,
    ) -> None:
        self._queue = queue
        self._sequence = sequence
        first, end = first_bucket << _SLOT_BITS, queue.buckets << _SLOT_BITS
        self._folder = engine.new_spill_path(f"exports-{id(self):x}-{sequence}")
        self._rows = _Rows(queue, self._folder, first, end)
        self._chunk: list[pa.RecordBatch] = []
        self._chunk_bytes = 0

    def __enter__(self) -> "ChangedKeys":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, rank: Rank, rows: pa.RecordBatch) -> None:
        """Adds rows of the queue's columns. Those of rank FORMER have keys and null values."""
        if not rows.num_rows:
            return
        ranks = pa.repeat(pa.scalar(int(rank), pa.int8()), rows.num_rows)
        self._chunk.append(rows.append_column(_RANK, ranks))
        self._chunk_bytes += rows.nbytes
        if self._chunk_bytes > _CHUNK_BYTES:
            self._add_chunk()

    def parts(self) -> Iterator[KeyPart]:
        """Yields the exports by bucket: `sequence`, `__gone`, keys, values."""
        self._add_chunk()
        for table, slot in self._rows.parts():
            yield KeyPart(self._exports(table), slot >> _SLOT_BITS)

    def _add_chunk(self) -> None:
        if self._chunk:
            self._rows.add(_last_of(self._queue, pa.Table.from_batches(self._chunk), _RANK))
            self._chunk, self._chunk_bytes = [], 0

    def _exports(self, table: pa.Table) -> pa.RecordBatch:
        rows = _newest_rows(self._queue, table)
        tombstones = pc.equal(rows.column(_RANK), int(Rank.FORMER))
        sequence = pa.repeat(pa.scalar(self._sequence, pa.int64()), rows.num_rows)
        columns = [sequence, tombstones, *rows.columns[:-1]]
        return pa.RecordBatch.from_arrays(columns, schema=rows_schema(self._queue))


class _Rows:
    """Rows of the keys from slot `first` to before `end`: in memory, or in files by slot."""

    def __init__(self, queue: ExportQueue, folder: Path, first: int, end: int) -> None:
        self._queue = queue
        self._folder = folder / f"{first}-{end}"
        self._first, self._end = first, end
        self._kept: list[pa.Table] = []
        self._bytes = 0
        self._files: list[_PartFile] = []

    def add(self, rows: pa.Table) -> None:
        slots = _find_slots(self._queue, rows)
        is_within = (slots >= self._first) & (slots < self._end)
        if not is_within.all():
            rows, slots = rows.filter(pa.array(is_within)), slots[is_within]
        if self._files:
            self._divide(rows, slots)
            return
        self._kept.append(rows)
        self._bytes += rows.nbytes
        # Rows of a single slot stay in memory: each key is once in every chunk.
        if self._bytes > MEMORY_BYTES and self._end - self._first > 1:
            self._spill()

    def parts(self) -> Iterator[tuple[pa.Table, int]]:
        """Yields the rows of whole keys, in order of slots, and the slot that ends each part."""
        if not self._files:
            if self._kept:
                yield pa.concat_tables(self._kept), self._end
            return
        for file in self._files:
            file.close()
        for file in self._files:
            if file.bytes > MEMORY_BYTES:
                part = _Rows(self._queue, self._folder, file.first, file.end)
                for rows in file.read():
                    part.add(rows)
                yield from part.parts()
            elif file.bytes:
                yield pa.concat_tables(file.read()), file.end
            file.delete()

    def _spill(self) -> None:
        make_spill_folder(self._folder)
        # Parts have whole buckets if there are several, so that each part advances the position.
        unit = 1 << _SLOT_BITS if self._end - self._first > 1 << _SLOT_BITS else 1
        units = (self._end - self._first) // unit
        count = min(_PARTS, units)
        ends = [self._first + units * n // count * unit for n in range(count + 1)]
        for first, end in pairwise(ends):
            self._files.append(_PartFile(self._folder / str(first), first, end))
        kept, self._kept = self._kept, []
        for rows in kept:
            self._divide(rows, _find_slots(self._queue, rows))

    def _divide(self, rows: pa.Table, slots: Slots) -> None:
        ends = np.array([file.end for file in self._files[:-1]], np.uint64)
        parts = np.searchsorted(ends, slots, side="right")
        order = np.argsort(parts, kind="stable")
        starts = np.searchsorted(parts[order], np.arange(len(self._files) + 1))
        rows = rows.take(pa.array(order)).combine_chunks()
        for file, start, end in zip(self._files, starts[:-1], starts[1:], strict=True):
            if start < end:
                file.write(rows.slice(start, end - start))


class _PartFile:
    """A local file of rows whose keys have a slot from `first` to before `end`."""

    def __init__(self, path: Path, first: int, end: int) -> None:
        self.first, self.end = first, end
        self.bytes = 0
        self._path = path
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def write(self, rows: pa.Table) -> None:
        with self._disk_errors():
            if self._writer is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writer = pa.ipc.new_stream(str(self._path), rows.schema, options=options)
            self._writer.write_table(rows)
        self.bytes += rows.nbytes

    def read(self) -> Iterator[pa.Table]:
        with (
            self._disk_errors(),
            pa.OSFile(str(self._path)) as file,
            pa.ipc.open_stream(file) as it,
        ):
            for batch in it:
                yield pa.Table.from_batches([batch])

    def close(self) -> None:
        if self._writer is not None:
            with self._disk_errors():
                self._writer.close()
            self._writer = None

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"cannot use {self._path} for exports: {error}") from error


def _find_slots(queue: ExportQueue, rows: pa.Table) -> Slots:
    """Returns the slot of each row's key: the bucket, and below it the upper half of the hash."""
    hashes = hash_rows(queue.schema, rows.to_batches())
    buckets = (hashes % np.uint64(queue.buckets)) << np.uint64(_SLOT_BITS)
    return buckets | (hashes >> np.uint64(_SLOT_BITS))


def numbered_exports(queue: ExportQueue, rows: pa.Table) -> pa.RecordBatch:
    """Returns the exports of rows that several transactions added.

    `rows` has the queue's columns and `__number`. The last row of a key and number is exported.
    """
    rows = _last_of(queue, rows, NUMBER_COLUMN).combine_chunks()
    numbers = rows.column(NUMBER_COLUMN).combine_chunks()
    tombstones = pa.repeat(pa.scalar(False), rows.num_rows)
    columns = [column.combine_chunks() for column in rows.columns[:-1]]
    return pa.RecordBatch.from_arrays([numbers, tombstones, *columns], schema=rows_schema(queue))


def _last_of(queue: ExportQueue, rows: pa.Table, column: str) -> pa.Table:
    """Returns the last row of each key and value of the column."""
    keys = [*(each.name for each in queue.keys), column]
    numbered = rows.select(keys).append_column(_ROW, _count(rows))
    last = numbered.group_by(keys, use_threads=False).aggregate([(_ROW, "max")])
    if last.num_rows == rows.num_rows:
        return rows
    return rows.take(last.column(f"{_ROW}_max").sort())


def _newest_rows(queue: ExportQueue, rows: pa.Table) -> pa.RecordBatch:
    """Returns the row of each key that is exported, with its rank."""
    keys = [each.name for each in queue.keys]
    ranks = rows.column(_RANK).to_numpy()
    order = np.argsort(ranks, kind="stable")
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order))
    numbered = rows.select([*keys, _RANK]).append_column(_ROW, pa.array(numbers))
    by_key = numbered.group_by(keys, use_threads=False).aggregate([(_ROW, "max"), (_RANK, "min")])
    last = order[np.sort(by_key.column(f"{_ROW}_max").to_numpy())]
    newest = rows.take(pa.array(last))
    if (ranks == Rank.REMAINING).any():
        # Of rows that remain only those of keys with a former row are exported.
        by_row = by_key.sort_by(f"{_ROW}_max")
        had_row = pc.equal(by_row.column(f"{_RANK}_min"), int(Rank.FORMER))
        is_new = pc.equal(newest.column(_RANK), int(Rank.NEW))
        newest = newest.filter(pc.or_(had_row, is_new))
    return newest.combine_chunks().to_batches()[0] if newest.num_rows else _no_rows(newest.schema)


def _count(rows: pa.Table) -> pa.Array:
    return pa.array(np.arange(rows.num_rows, dtype=np.int64))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
