"""Reads a queue's columns of rows that a version of its table has."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.latest import Stored, with_hidden
from sleeper.datafiles.sidecars.key_filter import hash_rows
from sleeper.export_queue.columns import QueueColumns
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region
from sleeper.query.plan import LeafPlan, QueryPlan, plan_query
from sleeper.query.request import Query, make_key_regions
from sleeper.query.result import TimeLimit
from sleeper.query.run import read_rows
from sleeper.schema.model import NUMBER_COLUMN, Field, Schema

_KEY_REGIONS_MAX = 1_000
_HASHES_MAX = 8 * 1024**2

Hashes = npt.NDArray[np.uint64]


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


class KeySet:
    """A set of keys by their hashes, of bounded size: a key may be in it without being added."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._schema = Schema(tuple(Field(each.name, each.type) for each in fields))
        self._parts: list[Hashes] = []
        self._count = 0
        self._is_full = False

    def add(self, rows: pa.RecordBatch) -> None:
        if self._is_full or not rows.num_rows:
            return
        self._parts.append(np.unique(hash_rows(self._schema, [rows])))
        self._count += len(self._parts[-1])
        if self._count > _HASHES_MAX:
            self._parts = [self._merged()]
            self._count = len(self._parts[0])
            self._is_full = self._count > _HASHES_MAX // 2

    def filter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows whose key was added, and maybe some others."""
        if self._is_full or not rows.num_rows:
            return rows
        if len(self._parts) != 1:
            self._parts = [self._merged()]
        known, hashes = self._parts[0], hash_rows(self._schema, [rows])
        places = np.minimum(np.searchsorted(known, hashes), max(len(known) - 1, 0))
        is_known = known[places] == hashes if len(known) else np.zeros(len(hashes), np.bool_)
        return rows if is_known.all() else rows.filter(pa.array(is_known))

    def _merged(self) -> Hashes:
        return np.unique(np.concatenate([*self._parts, np.empty(0, np.uint64)]))


class RowKeys:
    """The row keys of some rows: regions that contain them, and the keys in these regions.

    The regions are exact for few keys. For more there is one, of which `filter` keeps the rows.
    """

    def __init__(self, schema: Schema, bounds: Sequence[Region]) -> None:
        self._schema = schema
        self._bounds = bounds
        self._names = [each.name for each in schema.row_keys]
        self._keys: dict[tuple[Any, ...], None] = {}
        self._set = KeySet(schema.row_keys)
        self.are_listed = True

    def add(self, rows: pa.RecordBatch) -> None:
        self._set.add(rows)
        if self.are_listed:
            distinct = pa.Table.from_batches([rows]).select(self._names).group_by(self._names)
            found = distinct.aggregate([]).slice(0, _KEY_REGIONS_MAX + 1)
            self._keys |= dict.fromkeys(zip(*found.to_pydict().values(), strict=True))
            if len(self._keys) > _KEY_REGIONS_MAX:
                self._keys, self.are_listed = {}, False

    @property
    def regions(self) -> tuple[Region, ...]:
        if not self.are_listed:
            return tuple(self._bounds)
        return make_key_regions(self._schema, self._keys)

    def filter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of the keys, and maybe some others if the regions are not exact."""
        return rows if self.are_listed else self._set.filter(rows)
