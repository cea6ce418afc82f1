"""The key regions that a predicate of Polars needs.

Every row for which the predicate is true is in its regions. Polars has no stable form of an
expression to read, but returns its inputs and compares expressions: an expression is a comparison
of its inputs if it equals that comparison, made anew. Others do not narrow the regions.
"""

import operator
from collections.abc import Callable
from typing import Any

import polars as pl

from sleeper.errors import InvalidRequestError
from sleeper.query.sql.key_predicates import (
    MIRRORED,
    Regions,
    intersect_regions,
    unite_regions,
    value_regions,
)
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import Field, KeyValue, Schema

_DEPTH_MAX = 200
_VALUES_MAX = 1000
_JOINS = ((operator.and_, intersect_regions), (operator.or_, unite_regions))
_COMPARISONS: dict[str, Callable[[Any, Any], pl.Expr]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CLOSED = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


def find_regions(schema: Schema, types: pl.Schema, predicate: pl.Expr, depth: int = 0) -> Regions:
    """Returns regions of all rows for which the predicate is true; `None` for all rows.

    `types` are the types of the columns in Polars.
    """
    inputs = predicate.meta.pop()
    if depth > _DEPTH_MAX:
        return None
    if len(inputs) == 2:
        for left, right in (inputs, inputs[::-1]):
            for combine, join in _JOINS:
                if predicate.meta == combine(left, right):
                    return join(
                        find_regions(schema, types, left, depth + 1),
                        find_regions(schema, types, right, depth + 1),
                    )
    columns = [each for each in inputs if each.meta.is_column()]
    values = [each for each in inputs if each.meta.is_literal()]
    if len(columns) != 1 or len(columns) + len(values) != len(inputs):
        return None
    name = columns[0].meta.output_name()
    field = next((each for each in schema.row_keys if each.name == name), None)
    if field is None:
        return None
    if len(values) == 1:
        return _compare(schema, field, types[name], predicate, columns[0], values[0])
    if len(values) == 2:
        return _compare_range(schema, field, types[name], predicate, columns[0], values)
    return None


def _compare(
    schema: Schema, field: Field, kind: Any, predicate: pl.Expr, column: pl.Expr, literal: pl.Expr
) -> Regions:
    if predicate.meta == column.is_in(literal):
        return _list_regions(schema, field, kind, literal)
    for op, compare in _COMPARISONS.items():
        if predicate.meta == compare(column, literal):
            return _value_regions(schema, field, kind, op, literal)
        if predicate.meta == compare(literal, column):
            return _value_regions(schema, field, kind, MIRRORED[op], literal)
    return None


def _compare_range(
    schema: Schema,
    field: Field,
    kind: Any,
    predicate: pl.Expr,
    column: pl.Expr,
    ends: list[pl.Expr],
) -> Regions:
    for low, high in (ends, ends[::-1]):
        for closed, (above, below) in _CLOSED.items():
            if predicate.meta == column.is_between(low, high, closed=closed):  # type: ignore[arg-type]
                return intersect_regions(
                    _value_regions(schema, field, kind, above, low),
                    _value_regions(schema, field, kind, below, high),
                )
    return None


def _value_regions(schema: Schema, field: Field, kind: Any, op: str, literal: pl.Expr) -> Regions:
    value = _key_value(field, kind, pl.select(literal).to_series())
    return None if value is None else value_regions(schema, field, op, value)


def _list_regions(schema: Schema, field: Field, kind: Any, literal: pl.Expr) -> Regions:
    values = pl.select(literal).to_series()
    if isinstance(values.dtype, pl.List):
        values = values.explode()
    if len(values) > _VALUES_MAX:
        return None
    regions = []
    for position in range(len(values)):
        value = _key_value(field, kind, values.slice(position, 1))
        if value is None:
            return None
        regions += value_regions(schema, field, "=", value)
    return regions


def _key_value(field: Field, kind: Any, values: pl.Series) -> KeyValue | None:
    """Returns the only value; `None` if it is not one of exactly the field's type."""
    if len(values) != 1:
        return None
    are_integers = kind.is_integer() and values.dtype.is_integer()
    if values.dtype != kind and not are_integers:
        return None  # The engine compares them as values of a third type.
    try:
        return check_key_value(field, values.item())
    except InvalidRequestError:
        return None
