"""Writes many sorted rows as one data file, in one plan of the engine.

The engine merges the sorted runs, and encodes columns in parallel. A tap between merge and writer
gathers the facts, counts the rows of each leaf, and limits the bytes of a row group, because
DataFusion limits only its rows. If the limit is reached, or the writer has too little memory, the
file is deleted, and `write_sorted` writes the rows.
"""

import logging
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, functions, lit, udf

from sleeper.datafiles.arrow import as_light_views, is_view, view_lengths, view_schema
from sleeper.datafiles.engine.errors import EngineMemoryError
from sleeper.datafiles.engine.expression import column
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.sidecars.key_filter import Hashes
from sleeper.datafiles.sidecars.row_hashes import hash_expression
from sleeper.datafiles.write.file import KEPT_BYTES_MAX, ROW_GROUP_BYTES_MAX
from sleeper.datafiles.write.key_facts import KeyFacts
from sleeper.datafiles.write.merged import KeyTap, TappedFrame, write_tapped
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, WrittenFile
from sleeper.datafiles.write.route import LeafRouter
from sleeper.files import FileReference, new_data_path
from sleeper.partitions.partition import ROOT_PARTITION_ID
from sleeper.schema.model import Schema

logger = logging.getLogger(__name__)


class WideRowsError(Exception):
    """A row group would take more memory than allowed."""


def write_sorted_file(
    unsorted: RowSort,
    target: WriteTarget,
    on_rows: Callable[[int], None] = lambda _: None,
) -> WrittenFile | None:
    """Sorts the rows and writes them as one file. None if `write_sorted` must write them.

    That is so for few rows and for wide rows. `on_rows` receives row counts, of which all are taken
    back if None is returned.
    """
    if unsorted.bytes <= KEPT_BYTES_MAX:
        return None
    counted = 0

    def count(rows: int) -> None:
        nonlocal counted
        counted += rows
        on_rows(rows)

    try:
        return _write(unsorted, target, count)
    except (WideRowsError, EngineMemoryError) as error:
        logger.info("sorted rows are written in steps: %s", error)
        on_rows(-counted)
        return None


def is_one_file(target: WriteTarget, strategy: FileStrategy) -> bool:
    """Whether the rows of a write are one file."""
    return strategy is FileStrategy.ONE_REFERENCE_PER_LEAF or len(target.leaves) == 1


def _write(unsorted: RowSort, target: WriteTarget, on_rows: Callable[[int], None]) -> WrittenFile:
    schema, settings = target.schema, target.settings
    sample = unsorted.sample()
    size = sum(as_light_views(b, view_schema(schema)).nbytes for b in sample.to_batches())
    group_rows = settings.row_group_rows(sample.num_rows, size)
    options = settings.writer_options(sample.slice(0, group_rows), schema, group_rows)
    facts = _LeafFacts(settings.key_facts(schema), LeafRouter(schema, target.leaves))
    keys = KeyTap(schema, facts, on_rows, with_sort_keys=True)
    tap = RowTap(schema, keys, group_rows)
    only = target.leaves[0].id if len(target.leaves) == 1 else ROOT_PARTITION_ID
    path = new_data_path(target.table_id, only, target.run_start_ms)
    with unsorted.frame() as frame:
        file = write_tapped(
            TappedFrame(tap.above(frame), keys, facts.facts),
            path,
            target,
            options,
            target.folder or unsorted.folder,
            lambda: unsorted.check_sorted(facts.facts.rows),
        )
    references = tuple(
        FileReference(path, target.leaves[place].id, rows) for place, rows in facts.rows.items()
    )
    return WrittenFile(file, references)


class _LeafFacts:
    """The facts of a file, and the numbers of rows by place of the leaf."""

    def __init__(self, facts: KeyFacts, router: LeafRouter) -> None:
        self.facts = facts
        self.rows: dict[int, int] = {}
        self._router = router

    def add_hashed(self, batches: Sequence[pa.RecordBatch], hashes: Sequence[Hashes]) -> None:
        self.facts.add_hashed(batches, hashes)
        for batch in batches:
            for place, rows in self._router.route(batch):
                self.rows[place] = self.rows.get(place, 0) + rows.num_rows


class RowTap:
    """A plan node that passes all rows, gives their keys to a tap and limits row groups.

    A projection, because the engine would make a limit above a sort part of the sort, and move a
    filter below it.
    """

    def __init__(self, schema: Schema, keys: KeyTap, group_rows: int) -> None:
        self._schema = schema
        self._keys = keys
        self._group_rows = group_rows
        self._rows = 0
        self._bytes = 0

    def above(self, frame: DataFrame) -> DataFrame:
        """Returns the frame with the tap above it."""
        first, *others = fields = [column(f.name) for f in self._schema.fields]
        types = [frame.schema().field(f.name).type for f in self._schema.fields]
        tap = udf(self._take, [*types, pa.int64()], pa.bool_(), "volatile", "tap")
        hashes = hash_expression([column(f.name) for f in self._schema.row_keys])
        # Unlike a result of the tap, a column of alternatives is not nullable.
        passed = functions.case(tap(*fields, hashes)).when(lit(True), first).otherwise(first)
        return frame.select(passed.alias(self._schema.fields[0].name), *others)

    def _take(self, *columns: pa.Array) -> pa.Array:
        *fields, hashes = columns
        try:
            self._add_bytes(fields)
        except BaseException as error:
            self._keys.error = error
            raise
        return self._keys.take(*fields[: len(self._schema.keys)], hashes)

    def _add_bytes(self, fields: Sequence[pa.Array]) -> None:
        sizes = row_bytes(fields)
        start = 0
        while start < len(sizes):
            stop = min(start + self._group_rows - self._rows, len(sizes))
            self._rows += stop - start
            self._bytes += int(sizes[start:stop].sum())
            if self._bytes > ROW_GROUP_BYTES_MAX:
                raise WideRowsError(f"a row group of {self._bytes} bytes")
            if self._rows == self._group_rows:
                self._rows = self._bytes = 0
            start = stop


_VIEW_BYTES = 16
_OFFSET_BYTES = 4


def row_bytes(fields: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Returns the bytes of each row in memory."""
    sizes = np.zeros(len(fields[0]), np.int64)
    for values in fields:
        sizes += _value_bytes(values)
    return sizes


def _value_bytes(values: pa.Array) -> npt.NDArray[np.integer] | int:
    kind = values.type
    if is_view(kind):
        lengths = view_lengths(values)
        if values.null_count:
            lengths = lengths * pc.is_valid(values).to_numpy(zero_copy_only=False)
        sizes: npt.NDArray[np.int64] = lengths.astype(np.int64) + _VIEW_BYTES
        return sizes
    if pa.types.is_list(kind):
        return _bytes_of_lists(values.offsets, [values.values])
    if pa.types.is_map(kind):
        return _bytes_of_lists(values.offsets, [values.keys, values.items])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = np.ndarray((len(values) + 1,), np.int32, values.buffers()[1], values.offset * 4)
        return np.diff(offsets) + _OFFSET_BYTES
    return -(-int(kind.bit_width) // 8)


def _bytes_of_lists(offsets: pa.Array, elements: Sequence[pa.Array]) -> npt.NDArray[np.integer]:
    """Returns the bytes of each list, whose elements are parts of these arrays."""
    places = offsets.to_numpy()
    first, last = int(places[0]), int(places[-1])
    ends = np.zeros(last - first + 1, np.int64)
    if last > first:
        np.cumsum(row_bytes([each.slice(first, last - first) for each in elements]), out=ends[1:])
    sizes: npt.NDArray[np.int64] = np.diff(ends[places - first]) + _OFFSET_BYTES
    return sizes
