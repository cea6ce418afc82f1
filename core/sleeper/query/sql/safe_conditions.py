"""The conditions of a statement that the engine may evaluate on every row of a file.

A *safe* condition cannot fail: comparisons of a column with literals of its type, IS NULL, and AND
and OR of these. Others would reveal hidden rows by their errors, so they stay above the rows that
a table hides, and rows that they need are selected by the safe conditions that they contain.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from datafusion.expr import BinaryExpr, Column, Expr, InList, IsNotNull, IsNull, Literal, Not
from datafusion.functions import in_list

from sleeper.datafiles.engine.expression import column
from sleeper.query.sql.scans import Scan, expression_node

_SCANS_MAX = 16
_COMPARISONS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
# No NaN satisfies these. Statistics of floats omit NaN, which is greater than every other number.
_COMPARISONS_WITHOUT_NAN = frozenset(("=", "<", "<="))


def safe_condition(kinds: pa.Schema, scans: Sequence[Scan]) -> Expr | None:
    """Returns a safe condition that all rows satisfy which the scans of a table need.

    None selects all rows. `kinds` are the columns of the table, of the engine's types.
    """
    if not 0 < len(scans) <= _SCANS_MAX:
        return None
    alternatives: dict[str, Expr] = {}
    for scan in scans:
        parts = [_safe_part(kinds, each) for each in scan.predicates]
        safe = [part for part in parts if part is not None]
        if not safe:
            return None
        whole = reduce(lambda left, right: left & right, safe)
        alternatives[whole.canonical_name()] = whole
    return reduce(lambda left, right: left | right, alternatives.values())


def unsafe_conditions(kinds: pa.Schema, scans: Sequence[Scan]) -> Iterator[str]:
    """Yields the text of each condition of the scans that is not safe."""
    for scan in scans:
        for predicate in scan.predicates:
            for each in _conjuncts(predicate):
                if not _is_safe(kinds, each):
                    yield each.canonical_name()


def _conjuncts(predicate: Expr) -> Iterator[Expr]:
    node = expression_node(predicate)
    if isinstance(node, BinaryExpr) and node.op() == "AND":
        yield from _conjuncts(node.left())
        yield from _conjuncts(node.right())
    else:
        yield predicate


def _is_safe(kinds: pa.Schema, predicate: Expr) -> bool:
    node = expression_node(predicate)
    if isinstance(node, BinaryExpr) and node.op() in {"AND", "OR"}:
        return _is_safe(kinds, node.left()) and _is_safe(kinds, node.right())
    return _safe_leaf(kinds, node) is not None


def _safe_part(kinds: pa.Schema, predicate: Expr) -> Expr | None:
    """Returns a safe condition that is true wherever the predicate is true; None is always true."""
    node = expression_node(predicate)
    if not isinstance(node, BinaryExpr) or node.op() not in {"AND", "OR"}:
        return _safe_leaf(kinds, node)
    left, right = (_safe_part(kinds, each) for each in (node.left(), node.right()))
    if left is None or right is None:
        return None if node.op() == "OR" else right if left is None else left
    return left & right if node.op() == "AND" else left | right


def _safe_leaf(kinds: pa.Schema, node: Any) -> Expr | None:
    if isinstance(node, BinaryExpr):
        return _safe_comparison(kinds, node)
    if isinstance(node, InList):
        return _safe_list(kinds, node)
    if isinstance(node, IsNull | IsNotNull):
        field = _find_field(kinds, node.expr())
        if field is None:
            return None
        name = column(field.name)
        return name.is_null() if isinstance(node, IsNull) else name.is_not_null()
    field = _find_field(kinds, node.expr() if isinstance(node, Not) else node)
    if field is None or not pa.types.is_boolean(field.type):
        return None
    return ~column(field.name) if isinstance(node, Not) else column(field.name)


def _safe_comparison(kinds: pa.Schema, node: BinaryExpr) -> Expr | None:
    compare = _COMPARISONS.get(node.op())
    field = _find_field(kinds, node.left())
    value = None if field is None else _find_value(field, node.right())
    if field is None or value is None or compare is None:
        return None
    if pa.types.is_floating(field.type):
        number = value.as_py()
        if node.op() not in _COMPARISONS_WITHOUT_NAN or number != number:
            return None
    return compare(column(field.name), _literal(node.right()))


def _safe_list(kinds: pa.Schema, node: InList) -> Expr | None:
    field = _find_field(kinds, node.expr())
    if field is None or pa.types.is_floating(field.type):
        return None
    values = node.list()
    if any(_find_value(field, each) is None for each in values):
        return None
    return in_list(column(field.name), [_literal(each) for each in values], node.negated())


def _literal(expression: Any) -> Expr:
    # A new literal of the value would import pandas (apache/arrow#34994).
    return expression if isinstance(expression, Expr) else Expr(expression)


def _find_field(kinds: pa.Schema, expression: Any) -> pa.Field | None:
    node = expression_node(expression)
    if not isinstance(node, Column) or node.name() not in kinds.names:
        return None
    return kinds.field(node.name())


def _find_value(field: pa.Field, expression: Expr) -> pa.Scalar | None:
    """Returns the value of a literal of the field's type, None for anything else."""
    if not isinstance(expression_node(expression), Literal):
        return None
    value = expression.python_value()
    is_of_type = isinstance(value, pa.Scalar) and value.type == field.type and value.is_valid
    return value if is_of_type else None
