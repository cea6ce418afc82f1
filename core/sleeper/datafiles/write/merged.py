"""Writes a merge as one data file.

DataFusion writes the file if possible, because it encodes columns in parallel and rows do not
leave the engine. A tap above the merge gathers the facts for state and sidecars. Files of this
writer have no page checksums. `DataFileWriter` writes the other files: those of less than a row
group, those with rows of very uneven size, whose row groups might exceed memory, those of
iterators, and those with inputs on S3. A file for S3 is uploaded when it is complete.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, udf
from datafusion.dataframe import ParquetWriterOptions

from sleeper.datafiles.arrow import as_light_views, view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.expression import column
from sleeper.datafiles.engine.scan import add_barrier, check_files_exist
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_values import key_value
from sleeper.datafiles.merge.deletes import OnDropped
from sleeper.datafiles.merge.plan import MergePlan, merge_plan
from sleeper.datafiles.merge.request import MergeRequest
from sleeper.datafiles.sidecars.key_filter import Hashes
from sleeper.datafiles.sidecars.row_hashes import hash_expression
from sleeper.datafiles.write.engine_file import (
    EarlySync,
    make_durable,
    with_field_ids,
    write_frame,
)
from sleeper.datafiles.write.file import ROW_GROUP_BYTES_MAX, FileSettings
from sleeper.datafiles.write.json_annotation import annotate_json
from sleeper.datafiles.write.key_facts import KeyFacts
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.errors import DataError, SleeperError
from sleeper.files import SIDECAR_SUFFIXES, DataFile, new_data_path
from sleeper.schema.model import KeyValue, Schema, precedes
from sleeper.storage.bucket import is_s3_url

_ROWS_PER_TURN = 65_536
_QUEUED_TURNS_MAX = 2


class HashedRows(Protocol):
    """The consumer of a tap."""

    def add_hashed(self, batches: Sequence[pa.RecordBatch], hashes: Sequence[Hashes]) -> None:
        """Adds keys with their hashes."""


class KeyTap:
    """A plan node that passes all rows and adds their keys and hashes to the facts.

    A separate thread adds them in batches, concurrently to the merge. The facts are complete
    when the context ends.
    """

    def __init__(
        self,
        schema: Schema,
        facts: HashedRows,
        on_rows: Callable[[int], None],
        with_sort_keys: bool = False,
    ) -> None:
        self._schema = schema
        self._names = [f.name for f in (schema.keys if with_sort_keys else schema.row_keys)]
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
                self._submit()
                while self._turns:
                    self._turns.popleft().result()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def above(self, frame: DataFrame) -> DataFrame:
        """Returns the frame with the tap above it.

        The tap must not be moved below the merge, where it would see each input by itself.
        """
        types = [frame.schema().field(name).type for name in self._names]
        tap = udf(self.take, [*types, pa.int64()], pa.bool_(), "volatile", "tap")
        columns = [column(name) for name in self._names]
        return add_barrier(frame).filter(tap(*columns, hash_expression(columns)))

    def take(self, *columns: pa.Array) -> pa.Array:
        """Takes a batch's keys and hashes. Returns true for each row."""
        *keys, hashes = columns
        if not len(hashes):
            return pa.array([], pa.bool_())
        try:
            self._check_order(keys[0])
            self._keys.append(pa.RecordBatch.from_arrays(keys, self._names))
            self._hashes.append(hashes.to_numpy().view(np.uint64))
            self._rows += len(hashes)
            if self._rows >= _ROWS_PER_TURN:
                self._submit()
            self._on_rows(len(hashes))
        except BaseException as error:
            self.error = error
            raise
        return pa.array(np.ones(len(hashes), np.bool_))

    def _submit(self) -> None:
        keys, hashes = self._keys, self._hashes
        self._keys, self._hashes, self._rows = [], [], 0
        while len(self._turns) > _QUEUED_TURNS_MAX:
            self._turns.popleft().result()
        self._turns.append(self._thread.submit(self.facts.add_hashed, keys, hashes))

    def _check_order(self, keys: pa.Array) -> None:
        # Without this check, a plan that lost its order would write a file that looks valid.
        first, last = key_value(keys[0]), key_value(keys[-1])
        if precedes(last, first) or (self._last is not None and precedes(first, self._last)):
            raise DataError(f"rows are out of order: {first!r} to {last!r} after {self._last!r}")
        self._last = last


def write_merge(
    request: MergeRequest,
    engine: EngineSettings,
    target: WriteTarget,
    on_rows: Callable[[int], None] = lambda _: None,
    on_dropped: OnDropped = lambda _: None,
) -> DataFile | None:
    """Writes the merged rows as one file of the target's only leaf. None if there is no row.

    `on_rows` receives row counts, and stops the merge by raising. At the end, `on_dropped`
    receives the number of deleted rows that were left out. A failure deletes the file.
    """
    with merge_plan(request, engine) as plan, contextlib.closing(plan.batches()) as batches:
        first = _read_first_row_group(batches, target.schema, target.settings)
        is_local = not any(is_s3_url(each.url) for each in plan.inputs)
        if first.is_complete and is_local and not plan.is_iterated and _is_even(plan, first):
            batches.close()
            whole = plan.again()
            file = _write_by_engine(whole, engine.spill_folder, target, first, on_rows)
            on_dropped(sum(whole.dropped))
            return file
        written = write_sorted(
            itertools.chain(first.batches, batches),
            target,
            FileStrategy.ONE_REFERENCE_PER_LEAF,
            on_rows,
        )
        on_dropped(sum(plan.dropped))
        return written[0].file if written else None


@dataclass(frozen=True, slots=True)
class _FirstRowGroup:
    """The first batches of a file, and the rows per row group."""

    batches: list[pa.RecordBatch]
    rows: int
    is_complete: bool


def _read_first_row_group(
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
            return _FirstRowGroup(taken, group, is_complete=rows >= group)
    return _FirstRowGroup(taken, rows, is_complete=False)


def _is_even(plan: MergePlan, first: _FirstRowGroup) -> bool:
    """Whether row groups of these rows fit into memory even for the widest rows of the inputs.

    DataFusion limits a row group only by rows if it encodes columns in parallel.
    """
    with engine_errors():
        footers = (pq.read_metadata(each.url) for each in plan.inputs)
        groups = (f.row_group(position) for f in footers for position in range(f.num_row_groups))
        return all(
            g.total_byte_size * first.rows <= ROW_GROUP_BYTES_MAX * g.num_rows for g in groups
        )


def _write_by_engine(
    plan: MergePlan,
    folder: Path,
    target: WriteTarget,
    first: _FirstRowGroup,
    on_rows: Callable[[int], None],
) -> DataFile:
    (leaf,) = target.leaves
    path = new_data_path(target.table_id, leaf.id, target.run_start_ms)
    facts = target.settings.key_facts(target.schema)
    tap = KeyTap(target.schema, facts, on_rows)
    rows = pa.Table.from_batches(first.batches).slice(0, first.rows)
    options = target.settings.writer_options(rows, target.schema, first.rows)

    def check() -> None:
        check_files_exist([each.url for each in plan.inputs])

    return write_tapped(
        TappedFrame(tap.above(plan.frame), tap, facts), path, target, options, folder, check
    )


@dataclass(frozen=True, slots=True)
class TappedFrame:
    """A sorted frame whose tap gives its keys to the facts."""

    frame: DataFrame
    tap: KeyTap
    facts: KeyFacts


def write_tapped(
    rows: TappedFrame,
    path: str,
    target: WriteTarget,
    options: ParquetWriterOptions,
    folder: Path,
    check: Callable[[], None],
) -> DataFile:
    """Writes a frame as a data file with its sidecars, durably. A failure deletes the file.

    A file for S3 is in `folder` first. `check` is called when all rows are written.
    """
    root, facts = target.root, rows.facts
    stack = contextlib.ExitStack()
    # Outside of `try`, because a file of the same name must not be deleted.
    local = stack.enter_context(root.local_target(path, folder))
    try:
        with stack:
            with EarlySync(local), rows.tap:
                _write_frame(rows, target.schema, local, options)
            check()
            with ThreadPoolExecutor(1, "sidecars") as thread:
                written = thread.submit(facts.write_sidecars, root, path)
                size, checksum = make_durable(local, facts.rows)
                sidecars = (*written.result(), checksum.write_sidecar(root, path))
            root.sync([path + suffix for suffix in sidecars])
    except BaseException:  # an interrupt too
        with contextlib.suppress(SleeperError):
            root.delete([path + suffix for suffix in ("", *SIDECAR_SUFFIXES)])
        raise
    smallest, largest = facts.bounds()
    version = target.schema.version
    return DataFile(path, facts.rows, size, smallest, largest, version, sidecars)


def _write_frame(
    rows: TappedFrame, schema: Schema, path: Path, options: ParquetWriterOptions
) -> None:
    try:
        write_frame(with_field_ids(rows.frame, schema), path, options)
        annotate_json(path, schema)
    except SleeperError:
        if rows.tap.error is not None:
            raise rows.tap.error from None
        raise
