"""The latest rows of equal keys: the order of a merge by key and rank, and what it keeps.

A data file of a table with `LatestRows` has a key at most once. So it is sorted by key and by rank,
which is the field `by`, if there is one, and then the transaction number of the row, both
descending. In a merge in this order the first row of each key is the newest, and a filter above
the merge keeps it. A row that is a *tombstone* hides its key, and is dropped after that.

The rows of a file of one ingest have one number, which is a constant of the plan. Files with rows
of several numbers, which compactions write, have the column `__number`; files with tombstones have
`__deleted`, which is null in rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, lit, udf
from datafusion.expr import Expr, SortExpr

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.barrier import add_barrier
from sleeper.datafiles.engine.expression import (
    SortKey,
    column,
    key_sort_keys,
    sort_expressions,
)
from sleeper.datafiles.merge.deletes import OnDropped
from sleeper.datafiles.merge.first_of_key import FirstOfKey, keep_first, refuse_ties
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.datafiles.merge.stored import NUMBER_FIELD, Stored, with_hidden
from sleeper.processing.model import Aggregation, AggregationOp, Processing
from sleeper.schema.model import DELETED_COLUMN, NUMBER_COLUMN, Schema


def rank_sort_keys(schema: Schema, has_number: bool = True) -> tuple[SortKey, ...]:
    """Returns the order of rows by key, and the newest of each key first."""
    assert schema.latest is not None
    ranks = [] if schema.latest.by is None else [schema.latest.by]
    ranks += [NUMBER_COLUMN] if has_number else []
    return *key_sort_keys(schema), *(SortKey(name, is_descending=True) for name in ranks)


def rank_order(schema: Schema, has_number: bool = True) -> list[SortExpr]:
    """Returns `rank_sort_keys` for the engine."""
    return sort_expressions(rank_sort_keys(schema, has_number))


def keep_latest(
    frame: DataFrame, schema: Schema, first: "FirstOfKey", with_tombstones: bool
) -> DataFrame:
    """Keeps the first row of each key of a frame in `rank_order`, if it is no tombstone."""
    names = [field.name for field in schema.keys]
    types = [frame.schema().field(name).type for name in names]
    # One filter, because each node of a plan costs a lookup some time.
    find, of_rows = (first.find, []) if with_tombstones else (first.find_rows, [DELETED_COLUMN])
    kept = udf(find, [pa.bool_()] * len(of_rows) + types, pa.bool_(), "volatile", "first_of_key")
    columns = [column(name) for name in (*of_rows, *names)]
    return add_barrier(frame).filter(kept(*columns))


def drop_tombstones(frame: DataFrame) -> DataFrame:
    """Keeps the rows that are no tombstones."""
    return frame.filter(_is_row())


def _is_row() -> Expr:
    deleted = column(DELETED_COLUMN)
    return deleted.is_null() | ~deleted


def select_stored(
    frame: DataFrame, schema: Schema, stored: Stored, on_dropped: OnDropped
) -> DataFrame:
    """Selects the columns of a file that the rows are written to, without useless tombstones."""
    if stored.hiding_from or not stored.has_tombstones:

        def is_kept(deleted: pa.Array, numbers: pa.Array) -> pa.Array:
            kept = pc.invert(pc.fill_null(deleted, False))
            if stored.has_tombstones:
                kept = pc.or_(kept, pc.greater(numbers, stored.hiding_from))
            on_dropped(len(kept) - (pc.sum(kept).as_py() or 0))
            return kept

        kept = udf(is_kept, [pa.bool_(), pa.int64()], pa.bool_(), "volatile", "keep_tombstones")
        columns = column(DELETED_COLUMN), column(NUMBER_COLUMN)
        frame = add_barrier(frame).filter(kept(*columns))
    fields = with_hidden(schema, stored.has_numbers, stored.has_tombstones).fields
    return frame.select(*(column(field.name) for field in fields))


def with_number(frame: DataFrame, schema: Schema, number: int | None) -> DataFrame:
    """Selects the table's and the hidden columns of a scan. None is the number of each row."""
    if number is None:
        return frame
    constant = lit(pa.scalar(number, pa.int64())).alias(NUMBER_COLUMN)
    columns = [column(field.name) for field in schema.fields]
    return frame.select(*columns, constant, column(DELETED_COLUMN))


def add_number(frame: DataFrame, schema: Schema, number: int | None) -> DataFrame:
    """Adds the number to the table's columns of a scan. None is the number of each row."""
    if number is None:
        return frame
    constant = lit(pa.scalar(number, pa.int64())).alias(NUMBER_COLUMN)
    return frame.select(*(column(field.name) for field in schema.fields), constant)


def number_groups(steps: Sequence[ProcessingStep]) -> tuple[ProcessingStep, ...]:
    """Returns the steps with the largest number of each group that they aggregate."""
    largest = Aggregation(AggregationOp.MAX, NUMBER_COLUMN)

    def number(processing: Processing) -> Processing:
        aggregations = processing.aggregations
        return replace(processing, aggregations=aggregations and (*aggregations, largest))

    return tuple(replace(step, processing=number(step.processing)) for step in steps)


class LastRows:
    """Keeps the last row of each key of an ingest: the newest by its field, or by its place.

    Rows are staged with their place in the input, and sorted with the newest of each key first.
    `staged` are the fields in between. If the input `has_order`, its last row is the newest;
    otherwise a key may be twice only if the field orders its rows.
    """

    def __init__(self, schema: Schema, has_order: bool = True) -> None:
        self._schema = schema
        self._has_order = has_order
        self._rows = 0
        self._has_tombstones = False
        deleted = with_hidden(schema, has_numbers=False, has_tombstones=True)
        # No later file has this column, so it may have the name of the number.
        self.staged = replace(deleted, values=(*deleted.values, NUMBER_FIELD))

    @property
    def order(self) -> tuple[SortKey, ...]:
        """The order of the staged rows."""
        return rank_sort_keys(self._schema)

    @property
    def written(self) -> Schema:
        """The fields of the files, when all rows are staged."""
        return with_hidden(self._schema, False, self._has_tombstones)

    def stage(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the table's fields, maybe with tombstones, as staged rows."""
        kind = arrow_schema(self.staged)
        for batch in batches:
            rows = batch.num_rows
            fields = batch.columns[: len(self._schema.fields)]
            deleted = pa.nulls(rows, pa.bool_())
            if batch.num_columns > len(fields):
                deleted = batch.column(DELETED_COLUMN)
                self._has_tombstones |= deleted.null_count < rows
            places = pa.array(np.arange(self._rows, self._rows + rows))
            self._rows += rows
            yield pa.RecordBatch.from_arrays([*fields, deleted, places], schema=kind)

    def keep(self, in_order: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the first row of each key, with the columns of the files."""
        columns = [field.name for field in self.written.fields]
        if not self._has_order:
            in_order = refuse_ties(in_order, self._schema)
        yield from keep_first(in_order, self._schema, columns)
