"""Reads the rows of planned changes as Arrow batches."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.clock import iso_time
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.conversions import key_array
from sleeper.datafiles.key_values import from_key_values
from sleeper.datafiles.merge.request import Stored, with_hidden
from sleeper.errors import StateMovedOnError
from sleeper.files import DataFile, KeyFile
from sleeper.partitions.json import find_lower_end, region_to_json
from sleeper.partitions.region import Region
from sleeper.query.changes.plan import Operation, PlannedChange
from sleeper.query.engine import QueryEngine
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import read_rows
from sleeper.schema.model import DELETED_COLUMN, Schema
from sleeper.storage.location import DataRoot

_REGIONS_PER_BATCH = 1_000
_NO_LIMIT = TimeLimit()


@dataclass(frozen=True, slots=True)
class Change:
    """Rows or regions that one transaction changed. A large transaction has several changes.

    `number` and `time_ms` are those of the transaction, and `job` is the id of its job or request,
    None if an older version of Sleeper committed it. The `operation` is one of:

    - `insert`: the `rows`, in key order, were added.
    - `upsert`: the `rows`, in key order, were added to a table of latest rows, where they replace
      the rows of smaller numbers with the same row and sort keys.
    - `delete`: the rows of smaller numbers with the keys in `rows` were deleted. It has the row key
      fields, and for a row to delete of a table of latest rows also the sort key fields and the
      field that orders rows with equal keys.
    - `delete_region`: the rows of smaller numbers in the `deleted` regions were deleted.
    - `replace`: all rows were removed. The rows that the table has then are inserts of the number.
    """

    number: int
    time_ms: int
    job: str | None
    operation: str
    schema: Schema
    rows: pa.RecordBatch
    deleted: tuple[Region, ...] = ()

    @property
    def time(self) -> str:
        """The time of the transaction as ISO 8601 text in UTC."""
        return iso_time(self.time_ms)

    @property
    def regions(self) -> list[dict[str, Any]]:
        """The deleted regions as mappings, which `Table.delete` accepts."""
        return [region_to_json(self.schema, region) for region in self.deleted]

    def to_arrow(self) -> pa.RecordBatch:
        """Returns a row of the feed's Arrow schema for each row or region."""
        target = feed_schema(self.schema)
        row_type, region_type = target.field("row").type, target.field("region").type
        count = len(self.deleted) or self.rows.num_rows
        if self.operation == Operation.REPLACE:
            count = 1
        row, region = pa.nulls(count, row_type), pa.nulls(count, region_type)
        if self.deleted:
            region = _region_column(self.schema, self.deleted, region_type)
        elif self.rows.num_rows:
            # A delete has few of the columns.
            names = set(self.rows.schema.names)
            columns = [
                self.rows.column(f.name) if f.name in names else pa.nulls(count, f.type)
                for f in row_type
            ]
            row = pa.StructArray.from_arrays(columns, fields=list(row_type))
        job = pa.nulls(1, pa.string()) if self.job is None else key_array([self.job], pa.string())
        number, time = (key_array([each], pa.int64()) for each in (self.number, self.time_ms))
        operation = key_array([self.operation], pa.string())
        values = (number, time.view(target.field("time").type), job, operation)
        constants = [pa.repeat(each[0], count) for each in values]
        return pa.RecordBatch.from_arrays([*constants, row, region], schema=target)


def check_columns(change: Change, schema: Schema) -> Change:
    """Returns the change. StateMovedOnError if it has another schema, for streams with only one."""
    if change.schema != schema:
        raise StateMovedOnError(
            f"the schema of the table changed while its changes were read: read again, from "
            f"transaction {change.number} on"
        )
    return change


def read_change(
    planned: PlannedChange,
    schema: Schema,
    root: DataRoot,
    engine: QueryEngine,
    limit: TimeLimit = _NO_LIMIT,
) -> Iterator[Change]:
    """Yields the change in parts of bounded size: batches of rows in key order, or regions.

    StateMovedOnError if one of its files was collected; InvalidRequestError if the limit is
    exceeded.
    """
    target = arrow_schema(schema)

    def change(
        operation: Operation, rows: pa.RecordBatch, deleted: tuple[Region, ...] = ()
    ) -> Change:
        number, time_ms, job = planned.number, planned.time_ms, planned.job
        return Change(number, time_ms, job, operation.value, schema, rows, deleted)

    if planned.is_replacement:
        yield change(Operation.REPLACE, _no_rows(target))
    for start in range(0, len(planned.regions), _REGIONS_PER_BATCH):
        regions = planned.regions[start : start + _REGIONS_PER_BATCH]
        yield change(Operation.DELETE_REGION, _no_rows(target), regions)
    keys = replace(schema, sort_keys=(), values=(), latest=None)
    for file in planned.key_files:
        for batch in _read(planned.number, (_scan_keys(file),), keys, root, engine, limit):
            yield change(Operation.DELETE, batch)
    if schema.latest is not None and not planned.is_replacement:
        for operation, batch in _read_upserts(planned, schema, root, engine, limit):
            yield change(operation, batch)
        return
    for batch in _read(planned.number, planned.leaves, schema, root, engine, limit):
        yield change(Operation.INSERT, batch)


def _read_upserts(
    planned: PlannedChange, schema: Schema, root: DataRoot, engine: QueryEngine, limit: TimeLimit
) -> Iterator[tuple[Operation, pa.RecordBatch]]:
    """Yields rows with their operation. Of rows to delete, only the columns that identify them."""
    stored = Stored(has_numbers=False)
    names = arrow_schema(schema).names
    by = schema.latest.by if schema.latest else None
    identifying = [*names[: len(schema.keys)], *([by] if by else [])]
    for batch in _read(planned.number, planned.leaves, schema, root, engine, limit, stored):
        is_deleted = pc.fill_null(batch.column(DELETED_COLUMN), False)
        rows = batch.filter(pc.invert(is_deleted)).select(names)
        deleted = batch.filter(is_deleted).select(identifying)
        if rows.num_rows:
            yield Operation.UPSERT, rows
        if deleted.num_rows:
            yield Operation.DELETE, deleted


def _read(
    number: int,
    leaves: tuple[LeafPlan, ...],
    schema: Schema,
    root: DataRoot,
    engine: QueryEngine,
    limit: TimeLimit,
    stored: Stored | None = None,
) -> Iterator[pa.RecordBatch]:
    if not leaves:
        return iter(())
    kept = schema
    if stored is not None:
        kept = with_hidden(schema, stored.has_numbers, stored.has_tombstones)
    plan, target = QueryPlan(schema, number, leaves), arrow_schema(kept)
    return read_rows(plan, Query(raw=True), root, engine, target, (), limit, stored)


def _scan_keys(file: KeyFile) -> LeafPlan:
    """Returns the plan of a key file, which is a data file of the row key fields."""
    low = tuple(each.min for each in file.region.ranges)
    data_file = DataFile(file.path, file.keys, file.bytes, low, low, sidecars=file.sidecars)
    return LeafPlan((), (FileScan(data_file, None),))


@lru_cache(maxsize=64)
def feed_schema(schema: Schema) -> pa.Schema:
    """Returns the Arrow schema of changes as rows.

    `row` is a struct of the table's fields, null for a region. `region` is a struct that has `min`
    (inclusive) and `max` (exclusive) of each row key field, null for a row. `max` is null if it
    is open, and so is `min` of times, dates, booleans and decimals.
    """
    fields = [pa.field(f.name, f.type) for f in arrow_schema(schema)]
    ranges = [
        pa.field(f.name, pa.struct([pa.field("min", f.type), pa.field("max", f.type)]))
        for f in fields[: len(schema.row_keys)]
    ]
    return pa.schema(
        [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("time", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("job", pa.string()),
            pa.field("operation", pa.string(), nullable=False),
            pa.field("row", pa.struct(fields)),
            pa.field("region", pa.struct(ranges)),
        ]
    )


def _region_column(schema: Schema, regions: tuple[Region, ...], kind: pa.DataType) -> pa.Array:
    columns = []
    for index, (key, field) in enumerate(zip(schema.row_keys, kind, strict=True)):
        ranges = [region.ranges[index] for region in regions]
        ends = ([find_lower_end(key, r) for r in ranges], [r.max for r in ranges])
        values = [
            from_key_values(each, end.type) for each, end in zip(ends, field.type, strict=True)
        ]
        columns.append(pa.StructArray.from_arrays(values, fields=list(field.type)))
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
