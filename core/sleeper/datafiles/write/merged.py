"""A merge written as one data file.

Where it can, the engine writes what it merges: it encodes columns side by side, and hands
no row out; a tap above the merge gathers what the state and the sidecars want to know. Its
files have no checksums in their pages. Other files are streamed to
the `writer`: those of less than a row group, those of rows so uneven that a row group might
outgrow its memory, those that iterators make, and those whose inputs are read from S3. A
file that goes to S3 is put there when it is whole: there is room on disk where its inputs had it.
"""

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, udf
from datafusion.dataframe import DataFrameWriteOptions, ParquetColumnOptions, ParquetWriterOptions

from sleeper.datafiles.arrow import as_light_views, view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.predicate import column
from sleeper.datafiles.engine.scan_count import check_files_exist
from sleeper.datafiles.engine.session import EngineSettings, engine_url
from sleeper.datafiles.merge.plan import MergePlan, MergeRequest, merge_plan
from sleeper.datafiles.remote.file_end import section_ends
from sleeper.datafiles.sidecars.checksum import FileChecksum, checksum_in_sections
from sleeper.datafiles.sidecars.key_filter import Hashes, hash_expression
from sleeper.datafiles.write.file import (
    DICTIONARIES_PER_PAGE,
    ROW_GROUP_BYTES_MAX,
    FileSettings,
    dictionary_columns,
)
from sleeper.datafiles.write.key_facts import KeyFacts
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.errors import DataError, SleeperError, UnavailableError
from sleeper.files.data_file import SIDECAR_SUFFIXES, DataFile, new_data_path
from sleeper.schema.model import KeyValue, Schema, precedes
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.disk import sync_folder

# A limit that limits nothing: the engine moves filters below sorts and merges, where a tap
# would see each input's rows by themselves, but never below a limit.
_NO_LIMIT = 2**62
_ROWS_PER_TURN = 65_536
_QUEUED_TURNS_MAX = 2


class KeyTap:
    """Hears of all rows on their way: takes their keys and hashes, lets each row pass.

    What it takes goes to the facts in turns, in a thread of its own, so that the merge goes
    on meanwhile. Whoever enters it has all facts when it ends.
    """

    def __init__(self, schema: Schema, facts: KeyFacts, on_rows: Callable[[int], None]) -> None:
        self._schema = schema
        self._on_rows = on_rows
        self._last: KeyValue | None = None
        self._keys: list[pa.RecordBatch] = []
        self._hashes: list[Hashes] = []
        self._rows = 0
        self._turns: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, "key-facts")
        self.facts = facts
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._hand_over()
                while self._turns:
                    self._turns.popleft().result()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def above(self, frame: DataFrame) -> DataFrame:
        """The frame with the tap above it."""
        names = [f.name for f in self._schema.row_keys]
        types = [frame.schema().field(name).type for name in names]
        tap = udf(self._take, [*types, pa.int64()], pa.bool_(), "volatile", "tap")
        columns = [column(name) for name in names]
        return frame.limit(_NO_LIMIT).filter(tap(*columns, hash_expression(columns)))

    def _take(self, *columns: pa.Array) -> pa.Array:
        *keys, hashes = columns
        if not len(hashes):
            return pa.array([], pa.bool_())
        try:
            self._check_order(keys[0])
            names = [f.name for f in self._schema.row_keys]
            self._keys.append(pa.RecordBatch.from_arrays(keys, names))
            self._hashes.append(hashes.to_numpy().view(np.uint64))
            self._rows += len(hashes)
            if self._rows >= _ROWS_PER_TURN:
                self._hand_over()
            self._on_rows(len(hashes))
        except BaseException as error:
            self.error = error
            raise
        return pa.array(np.ones(len(hashes), np.bool_))

    def _hand_over(self) -> None:
        keys, hashes = self._keys, self._hashes
        self._keys, self._hashes, self._rows = [], [], 0
        while len(self._turns) > _QUEUED_TURNS_MAX:
            self._turns.popleft().result()
        self._turns.append(self._thread.submit(self.facts.add_hashed, keys, hashes))

    def _check_order(self, keys: pa.Array) -> None:
        # A plan that lost its order would make no file that is wrong to look at.
        first, last = keys[0].as_py(), keys[-1].as_py()
        if precedes(last, first) or (self._last is not None and precedes(first, self._last)):
            raise DataError(f"rows came out of order: {first!r} to {last!r} after {self._last!r}")
        self._last = last


_STATISTICS_BYTES = 64
_READ_BYTES = 1024 * 1024
# As Arrow calls them, with the levels that Arrow takes.
_CODECS = {
    "zstd": "zstd(1)",
    "gzip": "gzip(9)",
    "brotli": "brotli(8)",
    "lz4": "lz4_raw",
}


def write_merge(
    request: MergeRequest,
    engine: EngineSettings,
    target: WriteTarget,
    on_rows: Callable[[int], None] = lambda _: None,
) -> DataFile | None:
    """Writes the merged rows as one file of the target's only leaf; None if there is no row.

    `on_rows` hears of rows as they come, and stops it all by raising. What was written is
    deleted if it fails.
    """
    with merge_plan(request, engine) as plan, contextlib.closing(plan.batches()) as batches:
        begun = _first_row_group(batches, request.schema, target.settings)
        is_local = not any(is_s3_url(each.url) for each in plan.inputs)
        if begun.is_whole and is_local and not plan.is_iterated and _is_even(plan, begun):
            batches.close()
            return _write_by_engine(plan, engine.spill_folder, target, begun, on_rows)
        written = write_sorted(
            itertools.chain(begun.batches, batches),
            target,
            FileStrategy.ONE_REFERENCE_PER_LEAF,
            on_rows,
        )
        return written[0].file if written else None


@dataclass(frozen=True, slots=True)
class _FirstRowGroup:
    """The rows that a file begins with, and how many of them make a row group."""

    batches: list[pa.RecordBatch]
    rows: int
    is_whole: bool


def _first_row_group(
    batches: Iterator[pa.RecordBatch], schema: Schema, settings: FileSettings
) -> _FirstRowGroup:
    taken: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        taken.append(as_light_views(batch, view_schema(schema)))
        rows += batch.num_rows
        size += taken[-1].nbytes
        group = settings.row_group_rows(rows, size)
        if rows >= group or size >= ROW_GROUP_BYTES_MAX:
            return _FirstRowGroup(taken, group, is_whole=rows >= group)
    return _FirstRowGroup(taken, rows, is_whole=False)


def _is_even(plan: MergePlan, begun: _FirstRowGroup) -> bool:
    """Whether row groups of so many rows fit into memory wherever the inputs' rows are widest.

    The engine ends a row group by its rows alone if it encodes columns side by side.
    """
    with engine_errors():
        footers = (pq.read_metadata(each.url) for each in plan.inputs)
        groups = (f.row_group(place) for f in footers for place in range(f.num_row_groups))
        return all(
            g.total_byte_size * begun.rows <= ROW_GROUP_BYTES_MAX * g.num_rows for g in groups
        )


def _write_by_engine(
    plan: MergePlan,
    folder: Path,
    target: WriteTarget,
    begun: _FirstRowGroup,
    on_rows: Callable[[int], None],
) -> DataFile:
    root, (leaf,) = target.root, target.leaves
    path = new_data_path(target.table_id, leaf.id, target.run_start_ms)
    facts = target.settings.key_facts(target.schema)
    tap = KeyTap(target.schema, facts, on_rows)
    place = contextlib.ExitStack()
    # A name that is taken is somebody else's, and stays.
    local = place.enter_context(root.place_of(path, folder))
    try:
        with place:
            with tap:
                _write_tapped(plan.frame, tap, local, _options(target.settings, begun))
            # The engine takes a file that is not there for an empty one.
            check_files_exist([each.url for each in plan.inputs])
            size, checksum = _made_durable(local, facts.rows)
        sidecars = (*facts.write_sidecars(root, path), checksum.write_sidecar(root, path))
    except BaseException:  # an interrupt too
        with contextlib.suppress(SleeperError):
            root.delete([path + suffix for suffix in ("", *SIDECAR_SUFFIXES)])
        raise
    smallest, largest = facts.bounds()
    return DataFile(path, facts.rows, size, smallest, largest, sidecars=sidecars)


def _write_tapped(frame: DataFrame, tap: KeyTap, path: Path, options: ParquetWriterOptions) -> None:
    try:
        with engine_errors():
            tap.above(frame).write_parquet_with_options(
                engine_url(str(path)), options, DataFrameWriteOptions(single_file_output=True)
            )
    except SleeperError:
        if tap.error is not None:
            raise tap.error from None
        raise


def _options(settings: FileSettings, begun: _FirstRowGroup) -> ParquetWriterOptions:
    """What makes the engine lay a file out as the `writer` does."""
    rows = pa.Table.from_batches(begun.batches).slice(0, begun.rows)
    repeating = dictionary_columns(rows)
    # What is inside lists and maps has a dictionary, as it has by default.
    plain = [
        f.name for f in rows.schema if not pa.types.is_nested(f.type) and f.name not in repeating
    ]
    without = ParquetColumnOptions(dictionary_enabled=False)
    return ParquetWriterOptions(
        compression=_CODECS.get(settings.compression_codec, settings.compression_codec),
        data_pagesize_limit=settings.page_bytes,
        dictionary_page_size_limit=settings.page_bytes // DICTIONARIES_PER_PAGE,
        max_row_group_size=begun.rows,
        statistics_truncate_length=_STATISTICS_BYTES,
        # It would name views.
        skip_arrow_metadata=True,
        column_specific_options=dict.fromkeys(plain, without),
    )


def _made_durable(path: Path, rows: int) -> tuple[int, FileChecksum]:
    """Puts the file on disk, in its folder too; its bytes and checksum. It has so many rows."""
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            metadata = pq.read_metadata(path)
            parts = iter(lambda: file.read(_READ_BYTES), b"")
            checksum = checksum_in_sections(parts, section_ends(metadata))
            size = file.tell()
        sync_folder(path.parent)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error}") from error
    if metadata.num_rows != rows:
        raise DataError(f"{metadata.num_rows} rows were written of {rows}")
    return size, checksum
