"""Regions as DataFusion expressions over the row key columns."""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from datafusion import col, lit
from datafusion.expr import Expr, SortExpr
from datafusion.functions import in_list

from sleeper.partitions.region import Range, Region, holds_one_value
from sleeper.schema.model import (
    Field,
    KeyValue,
    PrimitiveType,
    Schema,
    smallest_key_value,
)

_LISTED_MIN = 3


def column(name: str) -> Expr:
    """The column of exactly that name, whatever characters it has."""
    return col('"' + name.replace('"', '""') + '"')


def key_order(schema: Schema) -> list[SortExpr]:
    """The order of rows in every file: row keys, then sort keys, ascending.

    Keys are never null; nulls are declared last because DataFusion sorts again, silently,
    when a file's declared order and a query's differ in that.
    """
    return [column(f.name).sort(ascending=True, nulls_first=False) for f in schema.keys]


def regions_predicate(schema: Schema, regions: Sequence[Region]) -> Expr | None:
    """Rows in any of the regions; None if that is every row. At least one region is needed."""
    points = _points_of_one_field(schema, regions)
    if points is not None:
        field = schema.row_keys[0]
        key = column(field.name)
        literals = [_literal(field, p) for p in points]
        # The bounds prune: a long list does not. The list comes first, for it leaves few rows
        # of which the bounds are looked at.
        return in_list(key, literals) & (key >= literals[0]) & (key <= literals[-1])
    parts = [_region_predicate(schema, region) for region in regions]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    return _any_of(known)


def _any_of(parts: list[Expr]) -> Expr:
    # By halves: a thousand regions in a row would overflow the planner's stack.
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return _any_of(parts[:half]) | _any_of(parts[half:])


def _region_predicate(schema: Schema, region: Region) -> Expr | None:
    parts = [
        part
        for field, within in zip(schema.row_keys, region.ranges, strict=True)
        for part in _range_predicates(field, within)
    ]
    return reduce(lambda a, b: a & b, parts) if parts else None


def _range_predicates(field: Field, within: Range) -> list[Expr]:
    key = column(field.name)
    if holds_one_value(field, within):
        return [key == _literal(field, within.min)]
    parts = []
    if within.min != smallest_key_value(field):
        parts.append(key >= _literal(field, within.min))
    if within.max is not None:
        parts.append(key < _literal(field, within.max))
    return parts


def _literal(field: Field, value: KeyValue) -> Expr:
    # Of the column's own type, so that the column is not cast row by row.
    kind = pa.int32() if field.type is PrimitiveType.INT else None
    return lit(pa.scalar(value, kind))


def _points_of_one_field(schema: Schema, regions: Sequence[Region]) -> list[KeyValue] | None:
    """The single keys that the regions are, ascending; None if they are anything else."""
    if len(schema.row_keys) != 1 or len(regions) < _LISTED_MIN:
        return None
    ranges = [r.ranges[0] for r in regions]
    if not all(holds_one_value(schema.row_keys[0], r) for r in ranges):
        return None
    return sorted({r.min for r in ranges})
