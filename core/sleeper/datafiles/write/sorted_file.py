"""Writes many sorted rows as one data file, in one plan of the engine.

The engine merges the sorted runs, and encodes columns in parallel. A tap between merge and writer
gathers the facts, counts the rows of each leaf, and limits the bytes of a row group, because
DataFusion limits only its rows. If the limit is reached, or the writer has too little memory, the
file is deleted, and `write_sorted` writes the rows.
"""

import logging
from collections.abc import Callable, Sequence

import pyarrow as pa
from datafusion import DataFrame, functions, lit, udf

from sleeper.datafiles.arrow import as_light_views, view_schema
from sleeper.datafiles.engine.errors import EngineMemoryError
from sleeper.datafiles.engine.expression import column
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.row_sizes import row_bytes
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

    sample = unsorted.sample()
    try:
        return _write(unsorted, sample, target, count)
    except (WideRowsError, EngineMemoryError) as error:
        logger.info("sorted rows are written in steps: %s", error)
        on_rows(-counted)
        return None


def is_one_file(target: WriteTarget, strategy: FileStrategy) -> bool:
    """Whether the rows of a write are one file."""
    return strategy is FileStrategy.ONE_REFERENCE_PER_LEAF or len(target.leaves) == 1


def _write(
    unsorted: RowSort, sample: pa.Table, target: WriteTarget, on_rows: Callable[[int], None]
) -> WrittenFile:
    schema, settings = target.schema, target.settings
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
        FileReference(path, target.leaves[index].id, rows) for index, rows in facts.rows.items()
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
            for position, rows in self._router.route(batch):
                self.rows[position] = self.rows.get(position, 0) + rows.num_rows


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
