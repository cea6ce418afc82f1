"""The rows that a query returns of a table's stored rows: newest of a key, filters, aggregations.

This is the meaning of docs/formats.md in plain Python, row by row.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from simulation.model.values import Value, comparable
from sleeper.processing.model import AgeOff, AggregationOp, Processing
from sleeper.schema.defaults import default_value
from sleeper.schema.model import Field, PrimitiveType, Schema

Row = tuple[Value, ...]
"""The values of all fields of a schema, in its order, as `comparable` returns them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BITS = {PrimitiveType.INT: 32, PrimitiveType.LONG: 64}


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row in the order of its schema. `is_tombstone`: it only hides older rows of its key."""

    values: Row
    is_tombstone: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows of one job that are not deleted, in their order, with its transaction number."""

    number: int
    job_id: str
    schema: Schema
    rows: tuple[StoredRow, ...]


def visible_rows(
    chunks: Iterable[Chunk], schema: Schema, processing: Processing, now_ms: int
) -> list[Row]:
    """Returns the rows that a query of all rows returns, in any order."""
    numbered = [
        (chunk.number, convert(row.values), row.is_tombstone)
        for chunk in chunks
        for convert in (_conversion(chunk.schema, schema),)
        for row in chunk.rows
    ]
    if schema.latest is not None:
        numbered = _newest(numbered, schema)
    rows = [values for _, values, is_tombstone in numbered if not is_tombstone]
    for age_off in processing.age_offs:
        rows = _young(rows, schema, age_off, now_ms)
    if processing.aggregations:
        rows = _aggregated(rows, schema, processing)
    return rows


def _conversion(source: Schema, target: Schema) -> Callable[[Row], Row]:
    """Returns the conversion of rows of a file to a later schema, field by field's id."""
    positions = {field.id: position for position, field in enumerate(source.fields)}
    if [f.id for f in source.fields] == [f.id for f in target.fields]:
        return lambda row: row
    picks = [(positions.get(each.id), _default(each)) for each in target.fields]

    def convert(row: Row) -> Row:
        return tuple(default if at is None else row[at] for at, default in picks)

    return convert


def _default(field: Field) -> Value:
    return None if field.default is None else comparable(default_value(field))


def _newest(rows: Iterable[tuple[int, Row, bool]], schema: Schema) -> list[tuple[int, Row, bool]]:
    """Returns the newest row of each key. Of equal ones, it is the last."""
    keys = len(schema.keys)
    names = [each.name for each in schema.fields]
    by = None if schema.latest is None or schema.latest.by is None else schema.latest.by
    position = None if by is None else names.index(by)
    newest: dict[Row, tuple[int, Row, bool]] = {}
    for row in sorted(rows, key=lambda each: each[0]):
        before = newest.get(row[1][:keys])
        if before is None or position is None or before[1][position] <= row[1][position]:
            newest[row[1][:keys]] = row
    return list(newest.values())


def _young(rows: Sequence[Row], schema: Schema, age_off: AgeOff, now_ms: int) -> list[Row]:
    position = [each.name for each in schema.fields].index(age_off.field)
    oldest: Any = now_ms - age_off.age_ms
    if schema.fields[position].type is PrimitiveType.TIMESTAMP:
        oldest = _EPOCH + timedelta(milliseconds=oldest)
    return [row for row in rows if row[position] is None or row[position] > oldest]


def _aggregated(rows: Iterable[Row], schema: Schema, processing: Processing) -> list[Row]:
    operations = {each.field: each.op for each in processing.aggregations}
    keys = len(schema.keys)
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[:keys], []).append(row[keys:])
    return [
        key
        + tuple(
            _combined(field, operations[field.name], values)
            for field, values in zip(schema.values, zip(*group, strict=True), strict=True)
        )
        for key, group in groups.items()
    ]


def _combined(field: Field, operation: AggregationOp, values: Iterable[Value]) -> Value:
    """Returns the value of a group of rows, null if all values are."""
    left = [each for each in values if each is not None]
    if not left:
        return None
    if operation.is_of_maps:
        return _combined_maps(field, operation, left)
    return reduce(_pair_function(operation, field.type), left)


def _combined_maps(field: Field, operation: AggregationOp, maps: Iterable[Row]) -> Row:
    result: dict[Value, Value] = {}
    combine = _pair_function(operation, field.type.value)  # type: ignore[union-attr]
    for key, value in (entry for each in maps for entry in each):
        result[key] = combine(result[key], value) if key in result else value
    return tuple(sorted(result.items()))


def _pair_function(operation: AggregationOp, kind: Any) -> Callable[[Value, Value], Value]:
    match operation:
        case AggregationOp.MIN | AggregationOp.MAP_MIN:
            return min
        case AggregationOp.MAX | AggregationOp.MAP_MAX:
            return max
    bits = _BITS[kind]

    def wrapped_sum(left: int, right: int) -> int:
        half = 1 << (bits - 1)
        return (left + right + half) % (2 * half) - half

    return wrapped_sum
