"""Which leaves must be merged with each other so that all rows come in key order.

Leaves that were cut on the first row key field alone come one after the other. Where
leaves were cut on a later field, rows of several leaves alternate in key order: these are
merged as if they were one, except where all their rows agree in the fields before.
"""

from collections.abc import Sequence
from typing import TypeVar

from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Schema, next_key_value, precedes

T = TypeVar("T")


def in_key_order(
    schema: Schema, placed: Sequence[tuple[Region, T]], dimension: int = 0
) -> list[list[T]]:
    """What lies in the regions, which do not overlap and agree in the fields before, in groups.

    Every key of a group comes before those of the groups after it.
    """
    if dimension == len(schema.row_keys):
        return [[each for _, each in placed]]
    groups: list[list[T]] = []
    for together in _overlapping(placed, dimension):
        if len(together) > 1 and _is_one_value(schema, [r for r, _ in together], dimension):
            groups += in_key_order(schema, together, dimension + 1)
        else:
            groups.append([each for _, each in together])
    return groups


def _overlapping(
    placed: Sequence[tuple[Region, T]], dimension: int
) -> list[list[tuple[Region, T]]]:
    """Ascending; together those whose ranges of the field overlap, if only through others."""
    groups: list[list[tuple[Region, T]]] = []
    end = None
    for region, each in sorted(placed, key=lambda p: [r.min for r in p[0].ranges[dimension:]]):
        within = region.ranges[dimension]
        if not groups or (end is not None and not precedes(within.min, end)):
            groups.append([])
            end = within.max
        elif end is not None and (within.max is None or precedes(end, within.max)):
            end = within.max
        groups[-1].append((region, each))
    return groups


def _is_one_value(schema: Schema, regions: Sequence[Region], dimension: int) -> bool:
    first = regions[0].ranges[dimension]
    point = Range(first.min, next_key_value(schema.row_keys[dimension], first.min))
    return point.max is not None and all(r.ranges[dimension] == point for r in regions)
