"""Reads a queue's columns of rows that a version of its table has."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.stored import Stored, with_hidden
from sleeper.export_queue.columns import QueueColumns
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region
from sleeper.query.plan import LeafPlan, QueryPlan, plan_query
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import read_rows
from sleeper.schema.model import NUMBER_COLUMN


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
