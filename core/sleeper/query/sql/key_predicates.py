"""The key regions that a statement needs of its tables, from its predicates.

Every row that satisfies a predicate is in its regions.
Unknown expressions do not narrow the regions, so these may be too large but never too small.
"""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pyarrow as pa
from datafusion.expr import BinaryExpr, Column, Expr, InList, Like, Literal, Not

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.key_values import key_value
from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.query.sql.scans import Scan, expression_node
from sleeper.schema.key_values import check_sorted_value
from sleeper.schema.model import (
    PLAIN_KEY_TYPES,
    Field,
    KeyValue,
    PrimitiveType,
    Schema,
    next_key_value,
    smallest_key_value,
)

_REGIONS_MAX = 1000
Regions = list[Region] | None
"""The rows in any of the regions; `None` for all rows."""


def needed_regions(schema: Schema, scans: Iterable[Scan]) -> Regions:
    """Returns the regions of the rows that the scans of a table need.

    A table without scans has no regions.
    """
    needed: Regions = []
    for scan in scans:
        regions: Regions = None
        for predicate in scan.predicates:
            regions = intersect_regions(regions, key_regions(schema, predicate))
        needed = unite_regions(needed, regions)
    return needed


def key_regions(schema: Schema, predicate: Expr) -> Regions:
    """Returns regions of all rows for which the predicate is true."""
    each = expression_node(predicate)
    if isinstance(each, BinaryExpr):
        op = each.op()
        if op in {"AND", "OR"}:
            combine = intersect_regions if op == "AND" else unite_regions
            return combine(key_regions(schema, each.left()), key_regions(schema, each.right()))
        return _comparison_regions(schema, op, each.left(), each.right())
    if isinstance(each, InList) and not each.negated():
        return _list_regions(schema, each)
    if isinstance(each, Like) and not each.negated():
        return _pattern_regions(schema, predicate, each)
    return _flag_regions(schema, each)


def intersect_regions(left: Regions, right: Regions) -> Regions:
    """Returns the regions of the rows in both."""
    if left is None or right is None:
        return right if left is None else left
    if len(left) * len(right) > _REGIONS_MAX:
        return min(left, right, key=len)
    met = (a.intersect(b) for a, b in product(left, right))
    return [region for region in met if region is not None]


def unite_regions(left: Regions, right: Regions) -> Regions:
    """Returns the regions of the rows in either."""
    if left is None or right is None or len(left) + len(right) > _REGIONS_MAX:
        return None
    return [*left, *right]


def value_regions(schema: Schema, field: Field, op: str, value: KeyValue) -> list[Region]:
    """Returns the regions of the rows whose key field compares with the value.

    `op` is `=`, `<`, `<=`, `>` or `>=`.
    """
    return _regions_within(schema, field, _comparison_range(field, op, value))


MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparisons, and those with the sides exchanged."""


def _comparison_regions(schema: Schema, op: str, left: Expr, right: Expr) -> Regions:
    if op not in MIRRORED:
        return None
    field, literal = _find_key_field(schema, left), right
    if field is None:
        field, literal, op = _find_key_field(schema, right), left, MIRRORED[op]
    value = None if field is None else _key_value(field, literal)
    if field is None or value is None:
        return None
    return value_regions(schema, field, op, value)


def _comparison_range(field: Field, op: str, value: Any) -> Range | None:
    """Returns the range of a comparison; `None` if it is empty."""
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


def _list_regions(schema: Schema, each: InList) -> Regions:
    field = _find_key_field(schema, each.expr())
    items = each.list()
    if field is None or len(items) > _REGIONS_MAX:
        return None
    points = []
    for item in items:
        value = _key_value(field, item)
        if value is None:
            return None
        points.append(value_regions(schema, field, "=", value))
    return [region for regions in points for region in regions]


def _flag_regions(schema: Schema, each: Any) -> Regions:
    """Returns the regions of a boolean key field or its negation, which the engine simplifies."""
    expected = not isinstance(each, Not)
    field = _find_key_field(schema, each if expected else each.expr())
    if field is None or field.type is not PrimitiveType.BOOLEAN:
        return None
    return value_regions(schema, field, "=", int(expected))


def _pattern_regions(schema: Schema, predicate: Expr, each: Like) -> Regions:
    field = _find_key_field(schema, each.expr())
    if field is None or field.type is not PrimitiveType.STRING:
        return None
    # `ILIKE` and `~*` are a `Like` too, which does not tell that it ignores case.
    with_case = f"{each.expr().canonical_name()} LIKE {each.pattern().canonical_name()}"
    if predicate.canonical_name() != with_case:
        return None
    pattern = _key_value(field, each.pattern())
    if not isinstance(pattern, str):
        return None
    if each.escape_char() is not None or "\\" in pattern:
        return None
    start = pattern[: min((pattern.find(c) for c in "%_" if c in pattern), default=len(pattern))]
    return _regions_within(schema, field, Range(start, _prefix_end(start)))


def _prefix_end(start: str) -> str | None:
    """Returns a string after all strings with the prefix; `None` if there is no simple one."""
    if not start or ord(start[-1]) in (0xD7FF, 0x10FFFF):
        return None
    return start[:-1] + chr(ord(start[-1]) + 1)


def _regions_within(schema: Schema, field: Field, within: Range | None) -> list[Region]:
    if within is None:
        return []
    position = schema.row_keys.index(field)
    ranges = list(whole_region(schema).ranges)
    ranges[position] = within
    return [Region(tuple(ranges))]


def _find_key_field(schema: Schema, expression: Any) -> Field | None:
    each = expression_node(expression)
    if not isinstance(each, Column):
        return None
    return next((f for f in schema.row_keys if f.name == each.name()), None)


def _key_value(field: Field, expression: Expr) -> KeyValue | None:
    """Returns the value of a literal; `None` for other expressions and values that do not fit.

    The engine casts the literal to the column's type if it can. Otherwise it casts the column,
    which is then not a plain key field.
    """
    if not isinstance(expression_node(expression), Literal):
        return None
    value = expression.python_value()
    if isinstance(value, pa.Scalar):
        if field.type not in PLAIN_KEY_TYPES and value.type != arrow_type(field.type):
            return None
        value = key_value(value)
    elif field.type not in PLAIN_KEY_TYPES:
        return None
    try:
        check_sorted_value(field, value)
    except InvalidRequestError:
        return None
    result: KeyValue = value
    return result
