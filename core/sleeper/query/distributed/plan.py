"""Divides a planned read into parts: groups of adjacent small leaves, and parts of large ones."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import ceil
from typing import TypeVar

from sleeper.datafiles.leaf_keys import LeafKeys, split_points
from sleeper.files import bounds_region
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region, hull
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.plan import QueryPlan, SelectedLeaf, plan_leaves
from sleeper.query.request import Query
from sleeper.schema.model import KeyValue, Schema
from sleeper.statestore.store import StateStore
from sleeper.storage.location import DataRoot

T = TypeVar("T")

# Bounds the memory for plans of a table with many leaves.
_LEAVES_PER_PLAN = 500
_PARTS_PER_LEAF_MAX = 256
# Bounds the time to read sketches. A read of more leaves runs in parallel without division.
_DIVIDED_LEAVES_MAX = 256
_LEAVES_AT_ONCE = 8
_REGIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class Part:
    """Leaves that one process reads one after another, without access to the state."""

    leaves: tuple[LeafPlan, ...]


def parts_of_leaves(leaves: Sequence[LeafPlan], bytes_max: int) -> list[Part]:
    """Returns the leaves as parts of at most `bytes_max`; a larger leaf is a part of its own."""
    return [Part(tuple(group)) for group in group_small(leaves, leaf_sizer(leaves), bytes_max)]


def leaf_sizer(leaves: Sequence[LeafPlan]) -> Callable[[LeafPlan], float]:
    """Returns a function for a leaf's bytes. Files count in equal shares for their leaves."""
    sharing = Counter(scan.file.path for leaf in leaves for scan in leaf.scans)
    return lambda leaf: sum(scan.file.bytes / sharing[scan.file.path] for scan in leaf.scans)


def divide_leaves(
    plan: QueryPlan, root: DataRoot, files_max: int, bytes_max: int
) -> list[LeafPlan]:
    """Returns the plan's leaves, of which those larger than `bytes_max` are divided.

    The sketches of a leaf's `files_max` largest files are read. StateMovedOnError if a file is
    gone.
    """
    size = leaf_sizer(plan.leaves)
    large = [leaf for leaf in plan.leaves if size(leaf) > bytes_max and not _is_lookup(leaf)]
    divided = sorted(large, key=size, reverse=True)[:_DIVIDED_LEAVES_MAX]

    def divide(leaf: LeafPlan) -> list[LeafPlan]:
        rows = [r for scan in leaf.scans for r in _regions(plan.schema, scan)]
        files = [scan.file for scan in leaf.scans]
        regions = divide_region(
            LeafKeys(plan.schema, hull(rows), files, files_max, root), bytes_max
        )
        return [part for region in regions if (part := _cut_leaf(leaf, region)).scans]

    with ThreadPoolExecutor(_LEAVES_AT_ONCE, "divide-leaves") as threads:
        parts = {
            id(leaf): part for leaf, part in zip(divided, threads.map(divide, divided), strict=True)
        }
    return [part for leaf in plan.leaves for part in parts.get(id(leaf), [leaf])]


def _is_lookup(leaf: LeafPlan) -> bool:
    """Returns whether the leaf is read at so many regions that little of each file is read."""
    return any(len(scan.regions or ()) > _REGIONS_MAX for scan in leaf.scans)


def _regions(schema: Schema, scan: FileScan) -> Sequence[Region]:
    return (bounds_region(schema, scan.file),) if scan.regions is None else scan.regions


def _cut_leaf(leaf: LeafPlan, region: Region) -> LeafPlan:
    """Returns the plan of the leaf's rows in the region."""
    scans = []
    for scan in leaf.scans:
        file = scan.file
        bounds = file.smallest_key, file.largest_key
        if scan.regions is None and region.contains_bounds(*bounds):
            scans.append(scan)
            continue
        parts = (region.intersect(each) for each in scan.regions or (region,))
        regions = tuple(
            part for part in parts if part is not None and part.overlaps_bounds(*bounds)
        )
        if regions:
            scans.append(replace(scan, regions=regions))
    return LeafPlan(leaf.leaf_ids, tuple(scans))


def divide_region(keys: LeafKeys, bytes_max: int) -> list[Region]:
    """Divides the keys' region at quantiles, into parts with about `bytes_max` of files each.

    Rows of one row key stay together, so filters and aggregations give the same rows as for the
    whole region.
    """
    size = sum(file.bytes for file in keys.files)
    rows = max(sum(file.rows for file in keys.files), 1)
    if size <= bytes_max:
        return [keys.region]
    for dimension, within in enumerate(keys.region.ranges):
        estimate = keys.estimate(dimension)
        # Files with rows outside the region count by their rows inside.
        share = min(estimate.rows / rows, 1.0)
        parts = min(ceil(size * share / bytes_max), _PARTS_PER_LEAF_MAX)
        points = split_points(estimate, within, dimension, parts) if parts > 1 else []
        if points:
            return list(_cut(keys.region, dimension, points))
    return [keys.region]


def _cut(region: Region, dimension: int, points: Sequence[KeyValue]) -> Iterator[Region]:
    within = region.ranges[dimension]
    for low, high in zip([within.min, *points], [*points, within.max], strict=True):
        ranges = list(region.ranges)
        ranges[dimension] = Range(low, high)
        yield Region(tuple(ranges))


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


def cut_leaves(store: StateStore, version: int) -> Iterator[list[tuple[int, SelectedLeaf]]]:
    """Yields the plans of all leaves with files at a version, with the leaves' positions.

    Pages of them, in key order. Positions count all leaves.
    """
    with store.reading(version) as state:
        leaves = list(state.partitions.leaves())
    for first in range(0, len(leaves), _LEAVES_PER_PLAN):
        page = leaves[first : first + _LEAVES_PER_PLAN]
        positions = {leaf.id: first + index for index, leaf in enumerate(page)}
        query = Query(tuple(leaf.region for leaf in page), version=version)
        with store.reading(version) as state:
            selected = plan_leaves(query, state.schema, state)
        yield [(positions[each.leaf.id], each) for each in selected]


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
        within = hull([leaf.region for leaf in page])
        parts = (region.intersect(within) for region in regions)
        query = Query(tuple(part for part in parts if part is not None))
        with store.reading(version) as state:
            selected = plan_leaves(query, state.schema, state)
        with_files = {each.leaf.id for each in selected}
        for position, leaf in enumerate(page, first):
            if leaf.id in with_files:
                yield position, leaf
