"""The scans in the plan of a statement, with the conditions that the engine moves to them."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from datafusion import DataFrame, LogicalPlan
from datafusion.expr import Column, Expr, Filter, Not, TableScan

logger = logging.getLogger(__name__)
_SCAN = "TableScan: "


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of a plan, with the predicates that all rows needed from it satisfy."""

    table: str
    columns: tuple[str, ...]
    predicates: tuple[Expr, ...]


def find_scans(frame: DataFrame) -> list[Scan] | None:
    """Returns the scans of the optimized plan, None if they are not known."""
    try:
        plan = frame.optimized_logical_plan()
        scans = list(_scans_below(plan, ()))
        lines = [line.strip() for line in plan.display_indent().splitlines()]
    except Exception as error:
        # Running the statement reports its errors.
        logger.debug("could not find the scans of a statement: %s", error)
        return None
    # Subqueries in expressions are not inputs of a plan, but they are in its text.
    return scans if sum(line.startswith(_SCAN) for line in lines) == len(scans) else None


def expression_node(expression: Any) -> Any:
    """Returns the Python object of an expression, None for functions and other kinds."""
    if isinstance(expression, Column | Not):
        return expression
    try:
        return expression.to_variant()
    except Exception:
        # Functions and other kinds of expressions have no Python class.
        return None


def _scans_below(plan: LogicalPlan, filters: tuple[Expr, ...]) -> Iterator[Scan]:
    node = _plan_node(plan)
    if isinstance(node, TableScan):
        columns = tuple(name for _, name in node.projection())
        yield Scan(node.fqn()[2], columns, (*filters, *node.filters()))
        return
    above = (*filters, node.predicate()) if isinstance(node, Filter) else ()
    for each in plan.inputs():
        yield from _scans_below(each, above)


def _plan_node(plan: LogicalPlan) -> Any:
    try:
        return plan.to_variant()
    except Exception:
        # Some kinds of plans have no Python class.
        return None
