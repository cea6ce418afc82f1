"""Reads the columns that are the keys and values of a queue, of rows that its table has."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.request import Stored, with_hidden
from sleeper.errors import DataError
from sleeper.export_queue.definition import ExportQueue
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region
from sleeper.query.leaf_plan import LeafPlan
from sleeper.query.plan import QueryPlan, plan_query
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import read_rows
from sleeper.schema.model import NUMBER_COLUMN, Schema


@dataclass(frozen=True)
class QueueColumns:
    """The fields of a queue in rows of one schema of its table.

    `names` are the table's names of the keys and then of the values, None for a value whose field
    was dropped: it is exported as null.
    """

    queue: ExportQueue
    schema: Schema
    names: tuple[str | None, ...]

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The names of the columns to read, each once."""
        return tuple(dict.fromkeys(name for name in self.names if name is not None))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The table's names of the keys."""
        return frozenset(name for name in self.names[: len(self.queue.keys)] if name is not None)

    @property
    def have_row_key(self) -> bool:
        """Whether the rows of a key of the queue have one row key."""
        return self.keys.issuperset(each.name for each in self.schema.row_keys)

    @property
    def have_whole_key(self) -> bool:
        """Whether the rows of a key of the queue have one row key and one sort key."""
        return self.keys.issuperset(each.name for each in self.schema.keys)

    @property
    def are_whole_key(self) -> bool:
        """Whether the keys of the queue are the row and sort key fields."""
        return self.keys == {each.name for each in self.schema.keys}

    @property
    def problem(self) -> str | None:
        """The dropped fields, None if there is none."""
        fields = (*self.queue.keys, *self.queue.values)
        dropped = [f.name for f, name in zip(fields, self.names, strict=True) if name is None]
        if not dropped:
            return None
        return f"exported as null, because the table dropped them: fields {', '.join(dropped)}"

    def select(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the queue's columns of rows of the table.

        DataError if a value of a field that was widened does not fit the queue's type.
        """
        return self._select(rows, self.names)

    def select_keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the queue's columns with the keys of rows, without rows that have a null key."""
        keys = self._select(rows, [*self.names[: len(self.queue.keys)], *_nones(self.queue)])
        for position in range(len(self.queue.keys)):
            if keys.column(position).null_count:
                keys = keys.filter(pc.is_valid(keys.column(position)))
        return keys

    def _select(self, rows: pa.RecordBatch, names: Iterable[str | None]) -> pa.RecordBatch:
        target = arrow_schema(self.queue.schema)
        columns = []
        for field, name in zip(target, names, strict=True):
            if name is None:
                columns.append(pa.nulls(rows.num_rows, field.type))
                continue
            column = rows.column(name)
            try:
                columns.append(column if column.type == field.type else column.cast(field.type))
            except pa.ArrowInvalid as error:
                raise DataError(
                    f"export queue {self.queue.name!r}: field {name!r} was widened, and a value "
                    f"does not fit the queue's type {field.type}: {error}; delete the queue and "
                    "create it again"
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=target)


def bind_columns(queue: ExportQueue, created: Schema, schema: Schema) -> QueueColumns:
    """Returns the columns in rows of the schema. `created` is that at the queue's creation.

    DataError if a field of a key was dropped.
    """
    names = {each.id: each.name for each in schema.fields}
    columns = tuple(names.get(created.field(each.name).id) for each in (*queue.keys, *queue.values))
    for key, name in zip(queue.keys, columns, strict=False):
        if name is None:
            raise DataError(
                f"export queue {queue.name!r}: the table has dropped the key field {key.name!r}: "
                "delete the queue"
            )
    return QueueColumns(queue, schema, columns)


def _nones(queue: ExportQueue) -> list[None]:
    return [None] * len(queue.values)


class TableReader:
    """Reads the rows that the table stores, before its filters and aggregations.

    `columns` are those of the queue, as of the schema of all reads.
    """

    def __init__(self, table: OpenTable, columns: QueueColumns) -> None:
        self.columns = columns
        self._table = table

    def read(
        self,
        version: int,
        regions: Sequence[Region] | None = None,
        others: Sequence[str] = (),
        stored: Stored | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a version in key order, with the queue's and the `others` columns.

        InvalidRequestError if the version cannot be read.
        """
        if regions is not None and not regions:
            return iter(())
        query = Query(None if regions is None else tuple(regions), raw=True)
        with self._table.state.reading(stale=True) as state:
            plan = plan_query(query, self.columns.schema, state.at(version))
        return self.read_leaves(plan.leaves, version, others, stored)

    def read_leaves(
        self,
        leaves: tuple[LeafPlan, ...],
        version: int,
        others: Sequence[str] = (),
        stored: Stored | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of files, as `read`."""
        if not leaves:
            return iter(())
        schema = self.columns.schema
        names = tuple(dict.fromkeys((*self.columns.read, *others)))
        kept = schema
        if stored is not None:
            kept = with_hidden(schema, stored.has_numbers, stored.has_tombstones)
        target = arrow_schema(kept)
        instance = self._table.instance
        return read_rows(
            QueryPlan(schema, version, leaves),
            Query(columns=names, raw=True),
            instance.storage.root,
            instance.queries.engine(),
            pa.schema([target.field(name) for name in names]),
            (),
            TimeLimit(),
            stored,
        )

    def read_numbered(self, leaves: tuple[LeafPlan, ...], version: int) -> Iterator[pa.RecordBatch]:
        """Yields the queue's columns of rows of ingests, with `__number`.

        All leaves are merged at once, so they should be few. Not for tables of latest rows.
        """
        schema = self.columns.schema
        leaf = LeafPlan((), tuple(scan for each in leaves for scan in each.scans))
        instance = self._table.instance
        for rows in read_rows(
            QueryPlan(schema, version, (leaf,)),
            Query(raw=True),
            instance.storage.root,
            instance.queries.engine(),
            arrow_schema(with_hidden(schema, True, False)),
            (),
            TimeLimit(),
            numbered=True,
        ):
            numbers = rows.column(NUMBER_COLUMN)
            yield self.columns.select(rows).append_column(NUMBER_COLUMN, numbers)
