"""What a statement needs of each of its tables, from its plan over empty tables."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa
from datafusion import DataFrame
from datafusion.expr import Expr

from sleeper.datafiles.arrow import view_schema
from sleeper.query.sql.key_predicates import Regions, needed_regions
from sleeper.query.sql.safe_conditions import safe_condition, unsafe_conditions
from sleeper.query.sql.scans import Scan, find_scans
from sleeper.schema.model import Schema

# How a plan shows a minus before an expression. That of a number is part of the literal. The engine
# ignores that the smallest integer is its own negation: to skip rows for `-k < 2`, it compares k
# with -2, and a plan fails if a condition below has that integer as a bound. So a statement with a
# negation shows the engine none of its conditions below the barrier.
_NEGATION = "(- "


@dataclass(frozen=True, slots=True)
class TableNeeds:
    """The rows and columns of a table that a statement reads; `None` for all of them.

    All needed rows are in the `regions` and satisfy the `condition`, which cannot fail. Without
    `prunes_exactly`, the engine must not see the conditions of the statement in the scan.
    """

    regions: Regions = None
    columns: AbstractSet[str] | None = None
    condition: Expr | None = None
    prunes_exactly: bool = False

    def reads(self, name: str) -> bool:
        """Returns whether the statement reads the column."""
        return self.columns is None or name in self.columns


def find_needs(frame: DataFrame, schemas: Mapping[str, Schema]) -> dict[str, TableNeeds]:
    """Returns, by table, what the statement needs.

    `schemas` are the fields that the statement may read. A table that is not scanned has no
    regions.
    """
    scans = find_scans(frame)
    if scans is None:
        return {}
    has_negation = _NEGATION in frame.optimized_logical_plan().display_indent()
    needs = {}
    for name, schema in schemas.items():
        of_table = [scan for scan in scans if scan.table == name]
        columns = frozenset().union(*(scan.columns for scan in of_table))
        kinds = view_schema(schema)
        needs[name] = TableNeeds(
            needed_regions(schema, of_table),
            columns if of_table else None,
            None if has_negation else safe_condition(kinds, of_table),
            not has_negation and _prunes_exactly(kinds, of_table),
        )
    return needs


def _prunes_exactly(kinds: pa.Schema, scans: list[Scan]) -> bool:
    """Returns whether the engine reads all rows that the predicates of the scans select.

    By the statistics of a file it skips rows that it should not, because statistics of floats omit
    NaN, which is greater than all numbers.
    """
    floats = [each.name for each in kinds if pa.types.is_floating(each.type)]
    unsafe = unsafe_conditions(kinds, scans) if floats else ()
    return not any(name in condition for condition in unsafe for name in floats)
