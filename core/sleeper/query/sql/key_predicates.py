"""Key regions that an SQL predicate leaves: every row that it lets through lies in them.

What is not understood narrows nothing, so regions may be too large, never too small.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from itertools import product
from typing import Any

from datafusion import DataFrame, LogicalPlan
from datafusion.expr import BinaryExpr, Column, Expr, Filter, InList, Like, Literal, TableScan

from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.model import (
    Field,
    PrimitiveType,
    Schema,
    check_key_value,
    next_key_value,
    smallest_key_value,
)

_REGIONS_MAX = 1000
Regions = list[Region] | None
"""Rows in any of them; None is all rows."""


def key_regions(schema: Schema, predicate: Expr) -> Regions:
    """Where the rows lie for which the predicate is true."""
    each = _node(predicate)
    if isinstance(each, BinaryExpr):
        op = each.op()
        if op == "AND":
            return both(key_regions(schema, each.left()), key_regions(schema, each.right()))
        if op == "OR":
            return either(key_regions(schema, each.left()), key_regions(schema, each.right()))
        return _compared(schema, op, each.left(), each.right())
    if isinstance(each, InList) and not each.negated():
        return _listed(schema, each)
    if isinstance(each, Like) and not each.negated():
        return _like(schema, each)
    return None


def both(left: Regions, right: Regions) -> Regions:
    """Rows that are in both."""
    if left is None or right is None:
        return right if left is None else left
    if len(left) * len(right) > _REGIONS_MAX:
        return min(left, right, key=len)
    met = (a.intersect(b) for a, b in product(left, right))
    return [region for region in met if region is not None]


def either(left: Regions, right: Regions) -> Regions:
    """Rows that are in one of them."""
    if left is None or right is None or len(left) + len(right) > _REGIONS_MAX:
        return None
    return [*left, *right]


_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(schema: Schema, op: str, left: Expr, right: Expr) -> Regions:
    if op not in _MIRRORED:
        return None
    field, value = _key_field(schema, left), _value(right)
    if field is None:
        field, value, op = _key_field(schema, right), _value(left), _MIRRORED[op]
    if field is None or not _fits(field, value):
        return None
    return _region_of(schema, field, _range_of(field, op, value))


def _range_of(field: Field, op: str, value: Any) -> Range | None:
    """None if no value is in it."""
    least, following = smallest_key_value(field), next_key_value(field, value)
    match op:
        case "=":
            return Range(value, following)
        case "<":
            return Range(least, value) if value != least else None
        case "<=":
            return Range(least, following)
        case ">":
            return Range(following, None) if following is not None else None
        case _:
            return Range(value, None)


def _listed(schema: Schema, each: InList) -> Regions:
    field = _key_field(schema, each.expr())
    values = [_value(item) for item in each.list()]
    if field is None or len(values) > _REGIONS_MAX or not all(_fits(field, v) for v in values):
        return None
    points = [_region_of(schema, field, _range_of(field, "=", v)) for v in values]
    return [region for regions in points for region in regions]


def _like(schema: Schema, each: Like) -> Regions:
    """By what the pattern begins with."""
    field, pattern = _key_field(schema, each.expr()), _value(each.pattern())
    if field is None or field.type is not PrimitiveType.STRING or not isinstance(pattern, str):
        return None
    if each.escape_char() is not None or "\\" in pattern:
        return None
    start = pattern[: min((pattern.find(c) for c in "%_" if c in pattern), default=len(pattern))]
    return _region_of(schema, field, Range(start, _after_all_with(start)))


def _after_all_with(start: str) -> str | None:
    """A text after all that begin so; None if that is not simple to say."""
    if not start or ord(start[-1]) in (0xD7FF, 0x10FFFF):
        return None
    return start[:-1] + chr(ord(start[-1]) + 1)


def _region_of(schema: Schema, field: Field, within: Range | None) -> list[Region]:
    if within is None:
        return []
    place = schema.row_keys.index(field)
    ranges = list(whole_region(schema).ranges)
    ranges[place] = within
    return [Region(tuple(ranges))]


def _key_field(schema: Schema, expression: Expr) -> Field | None:
    each = _node(expression)
    if not isinstance(each, Column):
        return None
    return next((f for f in schema.row_keys if f.name == each.name()), None)


def _value(expression: Expr) -> Any:
    """Of a literal; None for anything else."""
    if not isinstance(_node(expression), Literal):
        return None
    value = expression.python_value()
    return value.as_py() if hasattr(value, "as_py") else value


def _node(expression: Expr) -> Any:
    try:
        return expression.to_variant()
    except Exception:
        # Functions and other kinds of expressions have no face in Python.
        return None


def _fits(field: Field, value: object) -> bool:
    # The engine casts the literal to the column's type where it can; else it casts the column,
    # and then that is no key field.
    try:
        check_key_value(field, value)
    except InvalidRequestError:
        return False
    return True


logger = logging.getLogger(__name__)
_SCAN = "TableScan: "


def find_needed_regions(frame: DataFrame, schemas: Mapping[str, Schema]) -> dict[str, Regions]:
    """For each table the regions that its rows are needed of; None is all of them.

    A table that the plan does not scan is needed of no region.
    """
    found: dict[str, Regions] = {name: [] for name in schemas}
    try:
        plan = frame.optimized_logical_plan()
        scans: Counter[str] = Counter()
        _walk(plan, (), schemas, found, scans)
        # Subqueries within expressions are not among a plan's inputs, but they are in its text.
        lines = [line.strip() for line in plan.display_indent().splitlines()]
        if sum(line.startswith(_SCAN) for line in lines) == scans.total():
            return found
    except Exception as error:
        # What is wrong with the statement is said when it runs.
        logger.debug("statement is not narrowed: %s", error)
    return dict.fromkeys(schemas)


def _walk(
    plan: LogicalPlan,
    filters: tuple[Expr, ...],
    schemas: Mapping[str, Schema],
    found: dict[str, Regions],
    scans: "Counter[str]",
) -> None:
    node = _node_narrow(plan)
    if isinstance(node, TableScan):
        name = node.fqn()[2]
        scans[name] += 1
        if name in schemas:
            schema = schemas[name]
            regions: Regions = None
            for predicate in (*filters, *node.filters()):
                regions = both(regions, key_regions(schema, predicate))
            found[name] = either(found[name], regions)
        return
    above = (*filters, node.predicate()) if isinstance(node, Filter) else ()
    for each in plan.inputs():
        _walk(each, above, schemas, found, scans)


def _node_narrow(plan: LogicalPlan) -> Any:
    try:
        return plan.to_variant()
    except Exception:
        # Some kinds of plans have no face in Python.
        return None
