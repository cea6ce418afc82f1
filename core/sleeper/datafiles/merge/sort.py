"""Sorts rows by key in bounded memory.

The input consists of users' Parquet files that can be scanned unchanged, and of staged files with
all other rows, checked and cast. Files of one schema are one scan, so the number of
sorted runs is the number of threads, not the number of files.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame
from datafusion.expr import SortExpr

from sleeper.datafiles.arrow import arrow_schema, as_light_views, view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.expression import column, key_order
from sleeper.datafiles.engine.scan import scan_files, stream_batches
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings, spill_folder
from sleeper.datafiles.merge.staging import StagingWriter, open_staging_file
from sleeper.errors import DataError, UnavailableError
from sleeper.schema.model import Schema

_STAGED_ROWS_MAX = 1_000_000
_STAGED_BYTES_MAX = 256 * 1024 * 1024
# The engine sorts batches, then merges them. Large batches leave less to merge, which takes
# longest: batches of 131,072 rows sort in 0.65 of the time of batches of 8,192.
_BATCH_ROWS_MAX = 131_072
_BATCH_ROWS_MIN = 1024
_SPILLED_BATCH_ROWS_MAX = 8192
_BATCHES_IN_MEMORY = 128
# A view of text. Encoded files can be smaller than this.
_FIELD_BYTES_MIN = 16
_SAMPLED_FILES = 3
_SAMPLED_ROWS = 32_768
_SAMPLED_BYTES = 16 * 1024**2


@dataclass(slots=True)
class UnsortedRows:
    """Files to sort. Staged files are in a local folder that the caller deletes."""

    schema: Schema
    folder: Path
    rows: int = 0
    bytes: int = 0
    _groups: dict[str, list[str]] = field(default_factory=dict)

    def add_file(self, file: str, kind: pa.Schema, rows: int, size: int) -> None:
        """Adds a Parquet file, by path or URL, that can be scanned unchanged.

        `size` is the number of bytes of its rows, uncompressed.
        """
        self._group(str(kind)).append(file)
        self.rows += rows
        self.bytes += size

    def add_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Stages batches of the table's Arrow schema on local disk."""
        writer: StagingWriter | None = None
        rows = size = 0
        try:
            for batch in batches:
                with self._disk_errors():
                    if writer is None:
                        writer = open_staging_file(self.schema, self.folder)
                        self._group("staged").append(str(writer.path))
                    writer.write_batch(batch)
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    self.rows += batch.num_rows
                    self.bytes += batch.nbytes
                    if rows >= _STAGED_ROWS_MAX or size >= _STAGED_BYTES_MAX:
                        writer.close()
                        writer, rows, size = None, 0, 0
        finally:
            if writer is not None:
                with self._disk_errors():
                    writer.close()

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"cannot stage rows in {self.folder}: {error}") from error

    def batch_rows(self, settings: EngineSettings) -> int:
        """Returns the number of rows of the engine's batches, many of which fit into memory."""
        # Encoded rows, such as lists of few different values, may be far smaller than in memory.
        first = [files[0] for files in self.groups()][:_SAMPLED_FILES]
        decoded = itertools.chain.from_iterable(
            _first_rows(file, self.schema, settings, _BATCH_ROWS_MIN) for file in first
        )
        row_bytes = max((batch.nbytes / batch.num_rows for batch in decoded), default=0)
        size = max(self.bytes, int(row_bytes * self.rows))
        return _batch_rows(self.schema, self.rows, size, settings.memory_bytes)

    def check_sorted(self, rows: int) -> None:
        """Raises DataError unless this is the number of rows."""
        if rows != self.rows:
            raise DataError(
                f"an input file is damaged or has changed: sorted {rows} rows of {self.rows}"
            )

    def groups(self) -> Sequence[Sequence[str]]:
        """Returns the files grouped by schema."""
        return list(self._groups.values())

    def _group(self, name: str) -> list[str]:
        return self._groups.setdefault(name, [])


def _batch_rows(schema: Schema, rows: int, size: int, memory_bytes: int) -> int:
    row_bytes = max(size / max(rows, 1), _FIELD_BYTES_MIN * len(schema.fields))
    fitting = int(memory_bytes / _BATCHES_IN_MEMORY / row_bytes)
    # Rows that do not fit into memory are spilled in runs, and the merge holds batches of each.
    most = _BATCH_ROWS_MAX if size <= memory_bytes // 4 else _SPILLED_BATCH_ROWS_MAX
    return min(max(fitting, _BATCH_ROWS_MIN), most)


def sort_batches(
    batches: Iterator[pa.RecordBatch],
    schema: Schema,
    settings: EngineSettings,
    order: Sequence[SortExpr] = (),
) -> Iterator[pa.RecordBatch]:
    """Sorts batches of the table's Arrow schema. Yields batches of the engine's types.

    The default order is that of the keys.
    Batches of up to a quarter of the memory are sorted in memory, more are staged on disk.
    """
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        kept.append(batch)
        size += batch.nbytes
        if size > settings.memory_bytes // 4:
            with spill_folder(settings, "sort") as folder:
                unsorted = UnsortedRows(schema, folder)
                unsorted.add_batches(itertools.chain(kept, batches))
                yield from sort(unsorted, settings, order)
            return
    if kept:
        # Fewer input batches make fewer runs to merge.
        whole = pa.Table.from_batches(kept).combine_chunks().to_batches()
        rows = sum(batch.num_rows for batch in whole)
        session = open_session(
            settings, batch_rows=_batch_rows(schema, rows, size, settings.memory_bytes)
        )
        frame = _as_views(session.create_dataframe([whole]), schema)
        yield from stream_batches(session, frame.sort(*(order or key_order(schema))))


def sort(
    unsorted: UnsortedRows, settings: EngineSettings, order: Sequence[SortExpr] = ()
) -> Iterator[pa.RecordBatch]:
    """Yields all rows in order, by default of keys, in batches of the engine's types.

    Spills to disk.
    """
    batch_rows = unsorted.batch_rows(settings)
    session = open_session(settings, partitions=settings.threads, batch_rows=batch_rows)
    frames = []
    for files in unsorted.groups():
        with engine_errors():
            frames.append(_as_views(scan_files(session, files), unsorted.schema))
    if not frames:
        return
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    if len(frames) > 1:
        whole = whole.repartition(settings.threads)
    sorted_rows = 0
    in_order = whole.sort(*(order or key_order(unsorted.schema)))
    for batch in stream_batches(session, in_order):
        sorted_rows += batch.num_rows
        yield batch
    unsorted.check_sorted(sorted_rows)


def sort_frame(unsorted: UnsortedRows, settings: EngineSettings) -> DataFrame:
    """Returns the sorted rows of one group of files as a frame of the table's types.

    Nodes above its merge keep the order, because nothing divides the rows among partitions.
    """
    (files,) = unsorted.groups()
    batch_rows = unsorted.batch_rows(settings)
    session = open_session(
        settings,
        settings.threads,
        batch_rows,
        {"optimizer.enable_round_robin_repartition": "false"},
    )
    with engine_errors():
        kind = scan_files(session, files[:1]).schema()
        is_nullable = {f.name: f.nullable for f in unsorted.schema.fields}
        # The rows were checked, or the footers say that there is no null.
        fields = [f.with_nullable(is_nullable.get(f.name, True)) for f in kind]
        frame = _as_views(scan_files(session, files, pa.schema(fields)), unsorted.schema)
        return frame.sort(*key_order(unsorted.schema))


def sample_rows(unsorted: UnsortedRows, settings: EngineSettings) -> pa.Table:
    """Returns up to 100,000 rows in key order, from the starts of some files, in bounded memory.

    Adjacent rows are further apart than those of the sorted file.
    """
    (files,) = unsorted.groups()
    batches: list[pa.RecordBatch] = []
    for file in files[:: -(-len(files) // _SAMPLED_FILES)]:
        batches += _first_rows(file, unsorted.schema, settings, _SAMPLED_ROWS)
    for file in files:
        # The files above may have no rows.
        if not batches:
            batches += _first_rows(file, unsorted.schema, settings, _SAMPLED_ROWS)
    kind = view_schema(unsorted.schema)
    plain = pa.Table.from_batches(batches, kind).cast(arrow_schema(unsorted.schema))
    return plain.sort_by([(f.name, "ascending") for f in unsorted.schema.keys])


def _first_rows(
    file: str, schema: Schema, settings: EngineSettings, rows: int
) -> list[pa.RecordBatch]:
    session = open_session(settings)
    with engine_errors():
        frame = _as_views(scan_files(session, [file]), schema).limit(rows)
    batches, size = [], 0
    for batch in stream_batches(session, frame):
        if batch.num_rows:
            batches.append(as_light_views(batch, view_schema(schema)))
            size += batches[-1].nbytes
        if size >= _SAMPLED_BYTES:
            break
    return batches


def _as_views(frame: DataFrame, schema: Schema) -> DataFrame:
    """Selects the table's columns, with text and bytes as views, which sort fastest."""
    actual = frame.schema()
    return frame.select(
        *(
            column(f.name)
            if actual.field(f.name).type == f.type
            else column(f.name).cast(f.type).alias(f.name)
            for f in view_schema(schema)
        )
    )
