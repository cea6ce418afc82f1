"""The column of a user's rows that says what to do with each: upsert it, or delete its key."""

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.conversions import key_array
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import (
    DELETED_COLUMN,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)

UPSERTS = ("insert", "update", "upsert", "c", "r", "u")
DELETES = ("delete", "d")
"""The operations, in words and as Debezium abbreviates create, read, update and delete."""

_EMPTY: dict[PrimitiveType, object] = {
    PrimitiveType.STRING: "",
    PrimitiveType.BYTE_ARRAY: b"",
    PrimitiveType.BOOLEAN: False,
    PrimitiveType.TIMESTAMP: datetime(1970, 1, 1, tzinfo=UTC),
    PrimitiveType.DATE: date(1970, 1, 1),
    PrimitiveType.JSON: "null",
}
_ALL = key_array([*UPSERTS, *DELETES], pa.string())
_EXPECTED = "expected " + ", ".join([*UPSERTS, *DELETES])


@dataclass(frozen=True, slots=True)
class Operations:
    """A column of operations beside the fields of a table of latest rows.

    The values of a row to delete may be null, because only its key counts, and the field that
    orders rows, if there is one.
    InvalidRequestError if the table shows all rows, or has a field of that name.
    """

    schema: Schema
    column: str
    source_schema: Schema = field(init=False)

    def __post_init__(self) -> None:
        if self.schema.latest is None:
            raise InvalidRequestError(
                f"operations in column {self.column!r}: the table shows all rows (expected a table "
                "with the property sleeper.table.rows=latest)"
            )
        if self.column in {each.name for each in self.schema.fields}:
            raise InvalidRequestError(
                f"operations in column {self.column!r}: this is a field of the table (expected a "
                "column of another name)"
            )
        values = tuple(replace(each, nullable=True) for each in self.schema.values)
        # A dropped field of an earlier schema keeps its id.
        schemas = (self.schema, *self.schema.earlier)
        number = max(field.id for each in schemas for field in each.fields) + 1
        operation = Field(self.column, PrimitiveType.STRING, id=number)
        source = replace(self.schema, values=(*values, operation), latest=None)
        if source.earlier:
            # A field that the first schema does not have may be missing.
            first, *later = source.earlier
            first = replace(first, values=(*first.values, source.values[-1]), latest=None)
            source = replace(source, earlier=(first, *later))
        object.__setattr__(self, "source_schema", source)

    def find_faults(self, columns: dict[str, pa.Array]) -> dict[int, tuple[str, str]]:
        """Returns the field and fault of rows with an unknown operation, or nulls in values."""
        operations = columns[self.column]
        is_unknown = pc.and_(pc.is_valid(operations), pc.invert(pc.is_in(operations, _ALL)))
        faults = {
            row: (self.column, f"unknown operation {operations[row].as_py()!r} ({_EXPECTED})")
            for row in pc.indices_nonzero(is_unknown).to_pylist()
        }
        is_delete = _is_delete(operations)
        by = None if self.schema.latest is None else self.schema.latest.by
        for each in self.schema.values:
            values = columns[each.name]
            if not values.null_count or (each.nullable and each.name != by):
                continue
            # A delete without an order would hide nothing.
            is_wrong = is_delete if each.nullable else pc.invert(is_delete)
            if not each.nullable and each.name == by:
                is_wrong = pa.array(np.ones(len(values), np.bool_))
            reason = "null, but the field is not nullable"
            if each.name == by:
                reason = "null, but the field orders the rows with equal keys"
            for row in pc.indices_nonzero(pc.and_(pc.is_null(values), is_wrong)).to_pylist():
                faults.setdefault(row, (each.name, reason))
        return faults

    def find_deletes(self, columns: dict[str, pa.Array]) -> pa.Array:
        """Returns whether each row is a delete."""
        return _is_delete(columns[self.column])

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the table's fields, and whether a row is a tombstone, null if it is not."""
        is_delete = _is_delete(batch.column(self.column))
        arrays = []
        for each in self.schema.fields:
            values = batch.column(each.name)
            if not each.nullable and values.null_count:
                values = _fill(values, each.type)
            arrays.append(values)
        flags = pc.if_else(is_delete, True, pa.scalar(None, pa.bool_()))
        kind = arrow_schema(self.schema).append(pa.field(DELETED_COLUMN, pa.bool_()))
        return pa.RecordBatch.from_arrays([*arrays, flags], schema=kind)


def _is_delete(operations: pa.Array) -> pa.Array:
    return pc.is_in(operations, pa.array(DELETES))


def _fill(values: pa.Array, kind: FieldType) -> pa.Array:
    """Returns the values with an empty one in place of nulls."""
    empty = _EMPTY.get(kind, 0) if isinstance(kind, PrimitiveType) else 0
    if isinstance(kind, ListType | MapType):
        empty = []
    values = pa.concat_arrays([values, pa.array([empty], values.type)])
    last = len(values) - 1
    return values.take(pc.if_else(pc.is_valid(values[:last]), pa.array(np.arange(last)), last))
