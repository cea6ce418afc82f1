"""Partitions, trees of them, and the validation of trees."""

import itertools
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NewType

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Member
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import KeyValue, Schema, precedes

PartitionId = NewType("PartitionId", str)
ROOT_PARTITION_ID = PartitionId("root")


@dataclass(frozen=True, slots=True)
class Partition:
    """A region of the key space. A leaf has no children; the root has no parent."""

    id: PartitionId
    region: Annotated[Region, Member(flat=True, last=True)]
    parent_id: Annotated[PartitionId | None, Member("parent")] = None
    is_leaf: Annotated[bool, Member("leaf")] = True


def new_partition_id() -> PartitionId:
    """Returns a fresh id: 12 hex digits, random."""
    return PartitionId(uuid.uuid4().hex[:12])


def tree_from_split_points(schema: Schema, split_points: Sequence[object]) -> list[Partition]:
    """Returns a binary tree whose leaves are cut at the points, on the first row key field.

    Parents come before their children. Points are values of the first row key field,
    strictly ascending; InvalidRequestError names the first that is not.
    """
    field = schema.row_keys[0]
    points: list[KeyValue] = [check_key_value(field, p) for p in split_points]
    for before, after in itertools.pairwise(points):
        if not precedes(before, after):
            raise InvalidRequestError(
                f"split points must be in ascending order: {after!r} follows {before!r}"
            )
    root_region = whole_region(schema)
    if points and points[0] == root_region.ranges[0].min:
        raise InvalidRequestError(
            f"split point {points[0]!r} is the smallest value of its type (expected a larger one)"
        )
    partitions: list[Partition] = []
    _add_subtree(partitions, ROOT_PARTITION_ID, None, root_region, points)
    return partitions


def _add_subtree(
    partitions: list[Partition],
    partition_id: PartitionId,
    parent_id: PartitionId | None,
    region: Region,
    points: Sequence[KeyValue],
) -> None:
    partitions.append(Partition(partition_id, region, parent_id, is_leaf=not points))
    if not points:
        return
    middle = len(points) // 2
    left, right = split_region(region, 0, points[middle])
    _add_subtree(partitions, new_partition_id(), partition_id, left, points[:middle])
    _add_subtree(partitions, new_partition_id(), partition_id, right, points[middle + 1 :])


def split_region(region: Region, dimension: int, point: KeyValue) -> tuple[Region, Region]:
    """Returns the two halves of the region, cut at the point: below it, and from it on."""
    whole = region.ranges[dimension]
    if not whole.contains(point) or point == whole.min:
        raise InvalidRequestError(f"split point {point!r} does not divide the range {whole}")
    below, above = Range(whole.min, point), Range(point, whole.max)
    before, after = region.ranges[:dimension], region.ranges[dimension + 1 :]
    return Region((*before, below, *after)), Region((*before, above, *after))


MOST_LEVELS = 8


def levels_needed(rows: int, threshold: int) -> int:
    """Returns the number of halvings that bring the rows under the threshold, at most 8."""
    if rows <= threshold:
        return 0
    return min(MOST_LEVELS, math.ceil(math.log2(rows / threshold)))


def subtree(leaf: Partition, dimension: int, points: Sequence[KeyValue]) -> list[Partition]:
    """Returns the partitions to add below the leaf so that it is cut at the points.

    Parents come before their children; the tree is balanced over the points, which ascend
    and lie inside the leaf's range of the dimension.
    """
    added: list[Partition] = []
    _grow(added, leaf, leaf.region, dimension, points)
    return added


def _grow(
    added: list[Partition],
    parent: Partition,
    region: Region,
    dimension: int,
    points: Sequence[KeyValue],
) -> None:
    middle = len(points) // 2
    halves = split_region(region, dimension, points[middle])
    for half, inner in zip(halves, (points[:middle], points[middle + 1 :]), strict=True):
        child = Partition(new_partition_id(), half, parent.id, is_leaf=not inner)
        added.append(child)
        if inner:
            _grow(added, child, half, dimension, inner)


def find_subtree_fault(
    root_id: PartitionId, root_region: Region, below: Sequence[Partition], levels_max: int | None
) -> str | None:
    """Returns why `below` is no valid tree under the root, parents first; None if it is valid."""
    regions = {root_id: root_region}
    levels = {root_id: 0}
    children: dict[PartitionId, list[Region]] = {}
    for partition in below:
        parent_id = partition.parent_id
        if parent_id is None or parent_id not in regions:
            return f"partition {partition.id} does not follow its parent {parent_id}"
        if partition.id in regions:
            return f"partition {partition.id} is listed twice"
        regions[partition.id] = partition.region
        levels[partition.id] = levels[parent_id] + 1
        children.setdefault(parent_id, []).append(partition.region)
    if levels_max is not None and max(levels.values()) > levels_max:
        return f"the split is {max(levels.values())} levels deep: at most {levels_max}"
    for partition in below:
        if partition.is_leaf == (partition.id in children):
            return f"partition {partition.id} has a wrong leaf mark: {partition.is_leaf}"
    for parent_id, parts in children.items():
        if not tiles(regions[parent_id], parts):
            return f"the children of partition {parent_id} do not tile its region"
    return None


def tiles(whole: Region, parts: Sequence[Region]) -> bool:
    """Returns whether two or more parts divide the whole exactly, along one dimension."""
    if len(parts) < 2 or any(len(p.ranges) != len(whole.ranges) for p in parts):
        return False
    cut = [i for i, r in enumerate(whole.ranges) if any(part.ranges[i] != r for part in parts)]
    if len(cut) != 1:
        return False
    dimension = cut[0]
    ranges = sorted((p.ranges[dimension] for p in parts), key=lambda r: r.min)
    ends = [whole.ranges[dimension].min, *(r.max for r in ranges)]
    starts = [*(r.min for r in ranges), whole.ranges[dimension].max]
    return ends == starts and all(r.max is None or precedes(r.min, r.max) for r in ranges)
