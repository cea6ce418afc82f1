"""A node of the partition tree, and trees made from split points."""

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.model import KeyValue, Schema, check_key_value, precedes

PartitionId = NewType("PartitionId", str)

ROOT_PARTITION_ID = PartitionId("root")


@dataclass(frozen=True, slots=True)
class Partition:
    """A region of the key space. A leaf has no children; the root has no parent."""

    id: PartitionId
    region: Region
    parent_id: PartitionId | None = None
    is_leaf: bool = True


def new_partition_id() -> PartitionId:
    """A fresh id: 12 hex digits, random."""
    return PartitionId(uuid.uuid4().hex[:12])


def tree_from_split_points(schema: Schema, split_points: Sequence[object]) -> list[Partition]:
    """A binary tree whose leaves are cut at the points, on the first row key field.

    Parents come before their children. Points are values of the first row key field,
    strictly ascending; InvalidRequestError names the first that is not.
    """
    field = schema.row_keys[0]
    points: list[KeyValue] = [check_key_value(field, p) for p in split_points]
    for before, after in itertools.pairwise(points):
        if not precedes(before, after):
            raise InvalidRequestError(f"split points must ascend: {after!r} comes after {before!r}")
    root_region = whole_region(schema)
    if points and points[0] == root_region.ranges[0].min:
        raise InvalidRequestError(
            f"split point {points[0]!r} is the smallest value: it cuts nothing"
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
    """The two halves of the region, cut at the point: below it, and from it on."""
    whole = region.ranges[dimension]
    if not whole.contains(point) or point == whole.min:
        raise InvalidRequestError(f"split point {point!r} does not cut the range {whole}")
    below, above = Range(whole.min, point), Range(point, whole.max)
    before, after = region.ranges[:dimension], region.ranges[dimension + 1 :]
    return Region((*before, below, *after)), Region((*before, above, *after))
