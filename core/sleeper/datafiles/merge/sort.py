"""Sorts rows by key in bounded memory.

Rows are collected in memory and sorted there (`row_order`). Rows that do not fit are written as
sorted *runs* to local disk, which the engine merges (docs/design/0002-merge.md, *Sort*).
"""

import contextlib
import shutil
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, SessionContext

from sleeper.datafiles.arrow import arrow_schema, is_view, view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.expression import SortKey, column, key_sort_keys
from sleeper.datafiles.engine.scan import scan_files, stream_batches
from sleeper.datafiles.engine.session import open_session, register_buckets
from sleeper.datafiles.engine.settings import EngineSettings, make_spill_folder
from sleeper.datafiles.merge.row_buffer import RowBuffer
from sleeper.datafiles.merge.row_order import Places, sort_positions, take_rows
from sleeper.datafiles.merge.runs import Run, batch_rows, merged_runs, write_run
from sleeper.errors import DataError, UnavailableError
from sleeper.schema.model import Schema
from sleeper.storage.bucket import Bucket
from sleeper.storage.bucket_folder import S3File, SourceFile

# The memory of an order and its words, for each row.
_ORDER_BYTES = 24
# The shares of the memory that a buffer takes before and after the first run.
_FIRST_SHARE = 4
_SHARE = 16
_BUFFER_BYTES_MAX = 2**30
_PARTS = 4
# Threads that sort and write, each of which has a buffer.
_WRITERS_MAX = 4
_SAMPLED_ROWS = 100_000
_SAMPLED_BYTES = 16 * 1024**2


class RowSort:
    """Rows to sort by the order, by default that of the keys. Equal rows are in any order.

    A buffer of up to a quarter of the settings' memory collects rows. When it is full, they are
    sorted and written as a run in a thread, while the next buffer is filled, up to a sixteenth.
    Runs are in `folder`, which is made if it is missing, and which the caller deletes after
    `close`.
    """

    def __init__(
        self,
        schema: Schema,
        folder: Path,
        settings: EngineSettings,
        order: Sequence[SortKey] = (),
    ) -> None:
        self.schema = schema
        self.rows = 0
        self.bytes = 0
        self.folder = folder
        self._settings = settings
        self._order = tuple(order) or key_sort_keys(schema)
        self._buckets: list[Bucket] = []
        self._scans: dict[tuple[str, int], list[str]] = {}
        self._mentions = Counter[str]()
        self._file_rows = 0
        self._buffer: RowBuffer | None = None
        self._places: Places | None = None
        self._is_torn = False
        self._free: list[RowBuffer] = []
        self._writing: deque[Future[Run]] = deque()
        self._runs: list[Run] = []
        self._threads: ThreadPoolExecutor | None = None

    def add_file(self, file: SourceFile, kind: pa.Schema, rows: int, size: int) -> None:
        """Adds a Parquet file that can be scanned unchanged.

        `size` is the number of bytes of its rows, uncompressed. A file that is added twice is read
        twice.
        """
        if isinstance(file, S3File):
            self._buckets.append(file.bucket)
        path = str(file if isinstance(file, S3File) else file.resolve())
        # A scan reads a path once, however often it names the path.
        self._scans.setdefault((str(kind), self._mentions[path]), []).append(path)
        self._mentions[path] += 1
        self._file_rows += rows
        self.rows += rows
        self.bytes += size

    def add_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds batches of the table's Arrow schema."""
        for batch in batches:
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
            self._collect(batch)

    def close(self) -> None:
        """Waits until no thread writes to the folder."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows in order, in batches of the engine's types. It may be called again.

        DataError if a file has not as many rows as expected.
        """
        rows = 0
        with self._merged() as merged:
            in_order = stream_batches(*merged) if merged else self._sorted_rows()
            for batch in in_order:
                rows += batch.num_rows
                yield batch
        self.check_sorted(rows)

    @contextlib.contextmanager
    def frame(self) -> Iterator[DataFrame]:
        """Yields the rows in order, as a frame of the engine's types, valid in the context.

        Nodes above it keep the order, because nothing divides the rows among partitions.
        """
        with self._merged() as merged:
            if merged:
                yield merged[1]
                return
            batches = list(self._sorted_rows())
            if not batches:
                batches = [pa.RecordBatch.from_pylist([], view_schema(self.schema))]
            yield open_session(self._settings).create_dataframe([batches])

    def check_sorted(self, rows: int) -> None:
        """Raises DataError unless this is the number of rows."""
        if rows != self.rows:
            raise DataError(
                f"an input file is damaged or has changed: sorted {rows} rows of {self.rows}"
            )

    def sample(self) -> pa.Table:
        """Returns up to 100,000 rows in order, of the table's Arrow schema, in bounded memory.

        Adjacent rows may be further apart than in `batches`.
        """
        self._scan()
        batches, rows, size = [], 0, 0
        first = self._runs[0].batches() if self._runs else self._sorted_rows()
        for batch in first:
            batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _SAMPLED_ROWS or size >= _SAMPLED_BYTES:
                break
        views = pa.Table.from_batches(batches, view_schema(self.schema))
        return views.slice(0, _SAMPLED_ROWS).cast(arrow_schema(self.schema))

    def _scan(self) -> None:
        """Collects the rows of the files. Nothing is added after that."""
        if self._is_torn:
            raise UnavailableError("the rows to sort were not read completely")
        # Another scan would lack rows of one that failed.
        self._is_torn = True
        self._scan_files()
        self._is_torn = False

    def _scan_files(self) -> None:
        scans, self._scans = self._scans, {}
        rows = 0
        for paths in scans.values():
            for batch in self._scan_batches(paths):
                rows += batch.num_rows
                self._collect(batch)
        if rows != self._file_rows:
            self.check_sorted(self.rows - self._file_rows + rows)
        self._file_rows = 0
        if self._writing or self._runs:
            self._end_run()
        while self._writing:
            self._runs.append(self._writing.popleft().result())
        # A merge needs the memory.
        self._free.clear()

    def _scan_batches(self, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = {"optimizer.repartition_file_scans": "true"}
        session = open_session(self._settings, self._settings.threads, options=options)
        register_buckets(session, self._buckets)
        with engine_errors():
            for batch in _as_views(scan_files(session, files), self.schema).execute_stream():
                yield batch.to_pyarrow()

    def _collect(self, batch: pa.RecordBatch) -> None:
        self._places = None
        while batch.num_rows:
            if self._buffer is None:
                self._buffer = self._free.pop() if self._free else self._new_buffer()
            batch = self._buffer.add(batch)
            has_run = bool(self._writing or self._runs)
            size = self._buffer.bytes + self._buffer.rows * _ORDER_BYTES
            most = self._buffer_bytes(_SHARE if has_run else _FIRST_SHARE)
            if size >= most or not self._buffer.has_room:
                self._end_run()

    def _new_buffer(self) -> RowBuffer:
        return RowBuffer(view_schema(self.schema), self._buffer_bytes(_SHARE) // _PARTS)

    def _buffer_bytes(self, share: int) -> int:
        return min(self._settings.memory_bytes // share, _BUFFER_BYTES_MAX)

    def _end_run(self) -> None:
        """Sorts and writes what is collected, in a thread."""
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            return
        writers = min(self._settings.threads, _WRITERS_MAX)
        if self._threads is None:
            make_spill_folder(self.folder)
            self._threads = ThreadPoolExecutor(writers, "row-sort")
        while len(self._writing) >= writers:
            self._runs.append(self._writing.popleft().result())
        self._writing.append(self._threads.submit(self._write_run, buffer))

    def _write_run(self, buffer: RowBuffer) -> Run:
        rows = self._in_order(buffer, self._order_of(buffer))
        run = write_run(self.folder, self.schema, rows)
        buffer.clear()
        self._free.append(buffer)
        return run

    def _order_of(self, buffer: RowBuffer) -> Places:
        columns, names = buffer.columns(), buffer.kind.names
        keys = [columns[names.index(each.name)] for each in self._order]
        return sort_positions(keys, [each.is_descending for each in self._order])

    def _in_order(self, buffer: RowBuffer, positions: Places) -> Iterator[pa.RecordBatch]:
        """Yields the rows at the places, in batches of the engine's types."""
        columns = buffer.columns()
        step = batch_rows(len(positions), buffer.bytes, self._settings)
        for start in range(0, len(positions), step):
            taken = take_rows(columns, positions[start : start + step])
            arrays = [
                each.cast(field.type) if is_view(field.type) else each
                for each, field in zip(taken, buffer.kind, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=buffer.kind)

    def _sorted_rows(self) -> Iterator[pa.RecordBatch]:
        """Yields the collected rows in order, if there are no runs."""
        if self._buffer is None:
            return
        if self._places is None:
            self._places = self._order_of(self._buffer)
        yield from self._in_order(self._buffer, self._places)

    @contextlib.contextmanager
    def _merged(self) -> Iterator[tuple[SessionContext, DataFrame] | None]:
        """Yields the merge of the runs, None if there is no run."""
        self._scan()
        if not self._runs:
            yield None
            return
        with merged_runs(self.schema, self._runs, self._settings, self._order) as merged:
            yield merged


def sort_batches(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    settings: EngineSettings,
    order: Sequence[SortKey] = (),
) -> Iterator[pa.RecordBatch]:
    """Sorts batches of the table's Arrow schema. Yields batches of the engine's types.

    The default order is that of the keys.
    """
    folder = settings.spill_folder / f"sort-{uuid.uuid4().hex}"
    try:
        with contextlib.closing(RowSort(schema, folder, settings, order)) as rows:
            rows.add_batches(batches)
            yield from rows.batches()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_views(frame: DataFrame, schema: Schema) -> DataFrame:
    """Selects the table's columns, with text and bytes as views."""
    actual = frame.schema()
    return frame.select(
        *(
            column(f.name)
            if actual.field(f.name).type == f.type
            else column(f.name).cast(f.type).alias(f.name)
            for f in view_schema(schema)
        )
    )
