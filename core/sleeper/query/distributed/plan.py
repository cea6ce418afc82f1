"""Divides a planned read into parts: leaves, or groups of adjacent small leaves."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region
from sleeper.query.plan import LeafPlan, plan_leaves
from sleeper.query.request import Query
from sleeper.schema.json import schema_from_json
from sleeper.statestore.store import StateStore

T = TypeVar("T")

# Bounds the memory for plans of a table with many leaves.
_LEAVES_PER_PLAN = 500


@dataclass(frozen=True, slots=True)
class Part:
    """Leaves that one process reads one after another, without access to the state."""

    leaves: tuple[LeafPlan, ...]


def parts_of_leaves(leaves: Sequence[LeafPlan], bytes_max: int) -> list[Part]:
    """Returns the leaves as parts of at most `bytes_max`; a larger leaf is a part of its own."""
    # A file that several leaves share counts in equal shares.
    sharing = Counter(scan.file.path for leaf in leaves for scan in leaf.scans)

    def size(leaf: LeafPlan) -> float:
        return sum(scan.file.bytes / sharing[scan.file.path] for scan in leaf.scans)

    return [Part(tuple(group)) for group in group_small(leaves, size, bytes_max)]


def group_small(
    items: Iterable[T],
    size: Callable[[T], float],
    bytes_max: int,
    can_join: Callable[[list[T], T], bool] = lambda _group, _item: True,
) -> Iterator[list[T]]:
    """Groups adjacent items of together at most `bytes_max`; a larger item is a group alone."""
    group: list[T] = []
    total = 0.0
    for item in items:
        item_size = size(item)
        if group and (total + item_size > bytes_max or not can_join(group, item)):
            yield group
            group, total = [], 0.0
        group.append(item)
        total += item_size
    if group:
        yield group


def leaves_with_files(
    store: StateStore, regions: Sequence[Region], version: int | None = None, start: int = 0
) -> Iterator[tuple[int, Partition]]:
    """Yields the leaves with files that may hold rows of the regions, with their positions.

    In key order. Positions count all leaves that the regions overlap, with or without such
    files, so they are stable within a version. Leaves before position `start` are left out.
    """
    with store.reading(version) as state:
        leaves = state.partitions.leaves_overlapping(regions)
    for first in range(start, len(leaves), _LEAVES_PER_PLAN):
        page = leaves[first : first + _LEAVES_PER_PLAN]
        hull = _hull(page)
        cut = (region.intersect(hull) for region in regions)
        query = Query(tuple(region for region in cut if region is not None))
        with store.reading(version) as state:
            cuts = plan_leaves(query, schema_from_json(state.schema_json), state)
        with_files = {cut.leaf.id for cut in cuts}
        for position, leaf in enumerate(page, first):
            if leaf.id in with_files:
                yield position, leaf


def _hull(leaves: Sequence[Partition]) -> Region:
    """Returns the smallest region that contains all the leaves."""
    ranges = []
    for of_field in zip(*(leaf.region.ranges for leaf in leaves), strict=True):
        ends = [within.max for within in of_field if within.max is not None]
        lowest = min(of_field, key=lambda within: within.min)
        ranges.append(Range(lowest.min, max(ends) if len(ends) == len(of_field) else None))
    return Region(tuple(ranges))
