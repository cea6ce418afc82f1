"""Which key regions of each table an SQL statement can need, from its optimized plan.

The statement is planned over tables without rows. A filter that the optimizer put right
above a scan, or into it, lets through every row that the result depends on: that holds
for any statement, because it holds for the plan. Where a table is scanned several times,
any of the scans may need a row. What the walk does not see narrows nothing.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from datafusion import DataFrame, LogicalPlan
from datafusion.expr import Expr, Filter, TableScan

from sleeper.query.key_predicates import Regions, both, either, key_regions
from sleeper.schema.model import Schema

logger = logging.getLogger(__name__)

_SCAN = "TableScan: "


def regions_by_table(frame: DataFrame, schemas: Mapping[str, Schema]) -> dict[str, Regions]:
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
    node = _node(plan)
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


def _node(plan: LogicalPlan) -> Any:
    try:
        return plan.to_variant()
    except Exception:
        # Some kinds of plans have no face in Python.
        return None
