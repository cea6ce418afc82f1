"""Which leaves a query touches, some at a time: a page of splits plans no more than it lists."""

from collections.abc import Iterator, Sequence

from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region
from sleeper.query.engine import QueryTable
from sleeper.query.request import Query
from sleeper.query.running import plan_of_query

_PLANNED_AT_ONCE = 500


def touched_leaves(
    table: QueryTable, wanted: Sequence[Region], version: int | None = None, start: int = 0
) -> Iterator[tuple[int, Partition]]:
    """Leaves with files that may hold rows of the regions, in key order, each with its place.

    Places count all leaves that the regions overlap, whether or not they have such files;
    those before `start` are left out. Places of one version stay the same.
    """
    with table.store.reading(version) as state:
        leaves = state.partitions.leaves_overlapping(wanted)
    for first in range(start, len(leaves), _PLANNED_AT_ONCE):
        group = leaves[first : first + _PLANNED_AT_ONCE]
        around = _around(group)
        within = (region.intersect(around) for region in wanted)
        regions = tuple(region for region in within if region is not None)
        plan = plan_of_query(Query(regions, version=version), table)
        with_files = {leaf_id for leaf in plan.leaves for leaf_id in leaf.leaf_ids}
        for place, leaf in enumerate(group, first):
            if leaf.id in with_files:
                yield place, leaf


def _around(leaves: Sequence[Partition]) -> Region:
    """The smallest region that holds them all."""
    by_field = zip(*(leaf.region.ranges for leaf in leaves), strict=True)
    return Region(tuple(_span(ranges) for ranges in by_field))


def _span(ranges: Sequence[Range]) -> Range:
    ends = [within.max for within in ranges if within.max is not None]
    is_open = len(ends) < len(ranges)
    lowest = min(ranges, key=lambda within: within.min)
    return Range(lowest.min, None if is_open else max(ends))
