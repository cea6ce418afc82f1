"""How far down the tree the reference to a file goes.

A file's reference is in one partition, the lowest that contains its keys, while the leaves below
would get few of its rows each: one job compacts them there. If they get enough, each leaf has a
reference of its own. A file that has too many rows for one job, and too few for the leaves, has
references in the partitions between.
"""

from dataclasses import dataclass

from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.statestore.reading.table_state import TableState

_LEAVES_PER_FILE_MAX = 256
_LEAVES_PER_REFERENCE_MIN = 16


@dataclass(frozen=True, slots=True)
class Descent:
    """The rows, or the bytes, of a file that are enough for a reference in a leaf."""

    leaf_rows_min: int
    leaf_bytes_min: int

    def leaves_max(self, rows: int, size: int) -> int:
        """Returns the number of leaves for which the rows, of a size in bytes, are enough."""
        return max(rows // self.leaf_rows_min, size // self.leaf_bytes_min)


def find_partitions(
    state: TableState, descent: Descent | None, region: Region, rows: int, size: int
) -> list[Partition]:
    """Returns the partitions that refer to a file whose rows are in the region.

    Without a descent, these are the leaves.
    """
    if descent is None:
        return state.partitions.leaves_overlapping([region])
    lowest = state.partitions.lowest_containing(region)
    leaves_max = descent.leaves_max(rows, size)
    if lowest.is_leaf or leaves_max < 2:
        return [lowest]
    if state.partitions.count_overlapping(region, leaves_max + 1) <= leaves_max:
        return state.partitions.leaves_overlapping([region])
    if leaves_max < _LEAVES_PER_FILE_MAX:
        return [lowest]
    return _find_between(state, lowest, region, leaves_max // _LEAVES_PER_REFERENCE_MIN)


def _find_between(
    state: TableState, top: Partition, region: Region, partitions_max: int
) -> list[Partition]:
    """Returns the partitions below of the last level that has no more than this many."""
    level = [top]
    while True:
        below = [
            child
            for each in level
            for child in ([each] if each.is_leaf else state.partitions.children(each.id))
            if child.region.overlaps(region)
        ]
        if len(below) > partitions_max or below == level:
            return level
        level = below
