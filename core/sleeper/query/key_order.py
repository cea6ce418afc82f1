"""Groups regions that do not overlap, so that the groups are in key order."""

from collections.abc import Sequence
from typing import TypeVar

from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Schema, next_key_value, precedes

T = TypeVar("T")


def group_in_key_order(
    schema: Schema, placed: Sequence[tuple[Region, T]], dimension: int = 0
) -> list[list[T]]:
    """Returns the items in groups: every key of a group precedes the keys of later groups.

    The regions of the items do not overlap, and agree in the fields before `dimension`.
    """
    if dimension == len(schema.row_keys):
        return [[each for _, each in placed]]
    groups: list[list[T]] = []
    for group in _group_overlapping(placed, dimension):
        if len(group) > 1 and _is_one_value(schema, [r for r, _ in group], dimension):
            groups += group_in_key_order(schema, group, dimension + 1)
        else:
            groups.append([each for _, each in group])
    return groups


def _group_overlapping(
    placed: Sequence[tuple[Region, T]], dimension: int
) -> list[list[tuple[Region, T]]]:
    """Groups items whose ranges of the field overlap, directly or through others; ascending."""
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
