"""The partitions that a split adds below a leaf."""

import math
from collections.abc import Sequence

from sleeper.partitions.partition import Partition, new_partition_id, split_region
from sleeper.partitions.region import Region
from sleeper.schema.model import KeyValue

MOST_LEVELS = 8


def levels_needed(rows: int, threshold: int) -> int:
    """How many times to halve the rows until a part is within the threshold, at most 8."""
    if rows <= threshold:
        return 0
    return min(MOST_LEVELS, math.ceil(math.log2(rows / threshold)))


def subtree(leaf: Partition, dimension: int, points: Sequence[KeyValue]) -> list[Partition]:
    """The partitions to add below the leaf so that it is cut at the points.

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
