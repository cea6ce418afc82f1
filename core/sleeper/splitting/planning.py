"""Finds the leaves to split."""

from dataclasses import dataclass

from sleeper.partitions.partition import PartitionId
from sleeper.statestore.reading.table_state import TableState


@dataclass(frozen=True, slots=True)
class SplitCandidate:
    """A leaf over the threshold by what the state knows of its rows."""

    partition_id: PartitionId
    rows: int


def find_partitions_to_split(state: TableState, threshold: int) -> list[SplitCandidate]:
    """Leaves over the threshold that may be split, those with the most rows first."""
    over = [
        SplitCandidate(leaf.partition_id, leaf.rows + leaf.rows_above)
        for leaf in state.partitions.leaf_rows()
        if leaf.rows + leaf.rows_above > threshold
    ]
    unsplittable = set(state.partitions.unsplittable()) if over else set()
    found = [each for each in over if each.partition_id not in unsplittable]
    return sorted(found, key=lambda each: (-each.rows, each.partition_id))
