"""DataFusion expressions: regions over the row key columns, and extremes of floats.

Two limits of DataFusion shape the expressions. Statistics prune nothing for an IN list of more
than 20 values (apache/datafusion#8609, #24059), so a list is combined with its bounds. Planning
recurses over expressions (apache/datafusion#8900, #22936), so alternatives form a balanced tree.

In DataFusion's grouped MIN and MAX of floats the result depends on the place of a NaN and on the
sign of the first zero (apache/datafusion#24432), and the maximum of only -inf is the smallest
finite number (apache/datafusion#13415). So DataFusion aggregates the finite numbers, plus zero,
and beside them the class of each number. NaN is greater than every other number, -0.0 is 0.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from datafusion import col, lit
from datafusion import functions as f
from datafusion.expr import Expr, SortExpr
from datafusion.functions import in_list

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.key_values import key_scalar
from sleeper.partitions.region import Range, Region, holds_one_value
from sleeper.schema.model import (
    Field,
    KeyValue,
    Schema,
    smallest_key_value,
)

_LISTED_KEYS_MIN = 3


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


def sort_expressions(order: Sequence[SortKey]) -> list[SortExpr]:
    """Returns the order for the engine.

    DataFusion silently sorts again if the declared order of a file and the order of a query differ
    in the place of nulls, so both use nulls last.
    """
    return [column(o.name).sort(ascending=not o.is_descending, nulls_first=False) for o in order]


def key_order(schema: Schema) -> list[SortExpr]:
    """Returns `key_sort_keys` for the engine. Keys are never null."""
    return sort_expressions(key_sort_keys(schema))


def regions_predicate(schema: Schema, regions: Sequence[Region]) -> Expr | None:
    """Returns the predicate for rows in any region, None for every row. Needs a region."""
    keys = _single_keys(schema, regions)
    if keys is not None:
        field = schema.row_keys[0]
        key = column(field.name)
        literals = [_literal(field, value) for value in keys]
        # The list comes first because the bounds are then evaluated for few rows.
        return in_list(key, literals) & (key >= literals[0]) & (key <= literals[-1])
    parts = [_region_predicate(schema, region) for region in regions]
    bounded = [p for p in parts if p is not None]
    return _any(bounded) if len(bounded) == len(parts) else None


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


_MINUS_INFINITE, _FINITE, _INFINITE, _NAN = range(4)
_SPECIAL = {_MINUS_INFINITE: -float("inf"), _INFINITE: float("inf"), _NAN: float("nan")}


def extreme_parts(
    value: Expr, kind: pa.DataType, is_min: bool, name: str, class_name: str
) -> list[Expr]:
    """Returns two aggregations of a float column: the finite extreme and the extreme class."""
    extreme = f.min if is_min else f.max
    number_class = _number_class(value, kind)
    is_finite = (number_class == lit(_FINITE)) & value.is_not_null()
    zero = lit(pa.scalar(0.0, kind))
    return [
        extreme(value + zero, filter=is_finite).alias(name),
        extreme(number_class, filter=value.is_not_null()).alias(class_name),
    ]


def extreme_value(finite: Expr, number_class: Expr, kind: pa.DataType) -> Expr:
    """Returns the extreme from the results of `extreme_parts`."""
    value = f.case(number_class)
    for place, special in _SPECIAL.items():
        value = value.when(lit(place), lit(pa.scalar(special, kind)))
    return value.otherwise(finite)


def _number_class(value: Expr, kind: pa.DataType) -> Expr:
    """Returns the class of the float. Classes are numbered in the order of their values."""
    number_class = f.when(f.isnan(value), lit(_NAN))
    for place in (_MINUS_INFINITE, _INFINITE):
        number_class = number_class.when(value == lit(pa.scalar(_SPECIAL[place], kind)), lit(place))
    return number_class.otherwise(lit(_FINITE))
