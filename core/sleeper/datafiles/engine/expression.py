"""DataFusion expressions: orders of rows, and regions over the row key columns.

Two limits of DataFusion shape the expressions. Statistics prune nothing for an IN list of more
than 20 values (apache/datafusion#8609, #24059), so a list is combined with its bounds. Planning
recurses over expressions (apache/datafusion#8900, #22936), so alternatives form a balanced tree.
The time to plan and to evaluate them grows with their number, so many ranges are searched instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count

import pyarrow as pa
from datafusion import col, lit, udf
from datafusion.expr import Expr, SortExpr
from datafusion.functions import in_list

from sleeper.datafiles.arrow import arrow_type, view_schema
from sleeper.datafiles.engine.key_ranges import KeyRanges
from sleeper.datafiles.key_values import key_scalar
from sleeper.partitions.region import Range, Region, disjoint_regions, holds_one_value, hull
from sleeper.schema.model import NUMBER_COLUMN, Field, KeyValue, Schema, smallest_key_value

_LISTED_KEYS_MIN = 3
_SEARCHED_RANGES_MIN = 64
# Of ranges that are searched, by which statistics prune.
_PRUNING_RANGES = 32
_numbers = count()


def column(name: str) -> Expr:
    """Returns the column of exactly this name, with any characters."""
    return col('"' + name.replace('"', '""') + '"')


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column of an order."""

    name: str
    is_descending: bool = False


def key_sort_keys(schema: Schema) -> tuple[SortKey, ...]:
    """Returns the row order of data files: row keys, then sort keys, ascending."""
    return tuple(SortKey(field.name) for field in schema.keys)


def rank_sort_keys(schema: Schema, has_number: bool = True) -> tuple[SortKey, ...]:
    """Returns the order of rows by key, and the newest of each key first."""
    assert schema.latest is not None
    ranks = [] if schema.latest.by is None else [schema.latest.by]
    ranks += [NUMBER_COLUMN] if has_number else []
    return *key_sort_keys(schema), *(SortKey(name, is_descending=True) for name in ranks)


def sort_expressions(order: Sequence[SortKey]) -> list[SortExpr]:
    """Returns the order for the engine.

    DataFusion silently sorts again if the declared order of a file and the order of a query differ
    in the place of nulls, so both use nulls last.
    """
    return [column(o.name).sort(ascending=not o.is_descending, nulls_first=False) for o in order]


def key_order(schema: Schema) -> list[SortExpr]:
    """Returns `key_sort_keys` for the engine. Keys are never null."""
    return sort_expressions(key_sort_keys(schema))


def merge_order(schema: Schema, has_number: bool = True) -> list[SortExpr]:
    """Returns the order of a merge: by key and, of latest rows, by rank."""
    if schema.latest is None:
        return key_order(schema)
    return sort_expressions(rank_sort_keys(schema, has_number))


def regions_predicate(schema: Schema, regions: Sequence[Region]) -> Expr | None:
    """Returns the predicate for rows in any region, None for every row. Needs a region."""
    keys = _single_keys(schema, regions)
    if keys is not None:
        field = schema.row_keys[0]
        key = column(field.name)
        literals = [_literal(field, value) for value in keys]
        # The list comes first because the bounds are then evaluated for few rows.
        return in_list(key, literals) & (key >= literals[0]) & (key <= literals[-1])
    if len(schema.row_keys) == 1 and len(regions) >= _SEARCHED_RANGES_MIN:
        return _searched(schema, disjoint_regions(regions))
    parts = [_region_predicate(schema, region) for region in regions]
    bounded = [p for p in parts if p is not None]
    return _any(bounded) if len(bounded) == len(parts) else None


def _searched(schema: Schema, regions: Sequence[Region]) -> Expr:
    """Returns the predicate for rows in any of many ascending regions of one field."""
    (field,) = schema.row_keys
    size = -(-len(regions) // _PRUNING_RANGES)
    hulls = [hull(regions[start : start + size]) for start in range(0, len(regions), size)]
    parts = [part for region in hulls if (part := _region_predicate(schema, region)) is not None]
    ranges = KeyRanges([region.ranges[0] for region in regions], arrow_type(field.type))
    kind = view_schema(schema).field(field.name).type
    # The name identifies the function in a plan.
    name = f"in_ranges_{next(_numbers)}"
    searched = udf(ranges.contain, [kind], pa.bool_(), "volatile", name)(column(field.name))
    return _any(parts) & searched if len(parts) == len(hulls) else searched


def _any(parts: list[Expr]) -> Expr:
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return _any(parts[:half]) | _any(parts[half:])


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
    # A literal of the column's type avoids a cast of the column in every row.
    return lit(key_scalar(value, arrow_type(field.type)))


def _single_keys(schema: Schema, regions: Sequence[Region]) -> list[KeyValue] | None:
    """Returns the keys, ascending, if each region is one key of one field."""
    if len(schema.row_keys) != 1 or len(regions) < _LISTED_KEYS_MIN:
        return None
    ranges = [r.ranges[0] for r in regions]
    if not all(holds_one_value(schema.row_keys[0], r) for r in ranges):
        return None
    return sorted({r.min for r in ranges})
