"""The split of a leaf, and the mark of an unsplittable one."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.partitions.partition import Partition, PartitionId, find_subtree_fault
from sleeper.statestore.fold import Fold
from sleeper.statestore.rows import find_partition, insert_partition
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Transaction,
    Verdict,
    already_done,
    refused,
)

SPLIT_LEVELS_MAX = 8


@dataclass(frozen=True, slots=True)
class SplitPartition(Transaction):
    """Adds partitions below a leaf, parents first, up to eight levels at once.

    Refused if it is no longer a leaf. Its references stay, to be pushed down later.
    """

    kind: ClassVar[str] = "split_partition"
    partition_id: Annotated[PartitionId, Member("partition")]
    descendants: tuple[Partition, ...]

    def validate(self, fold: Fold) -> Verdict:
        leaf = find_partition(fold, self.partition_id)
        if leaf is None:
            return refused(f"partition {self.partition_id} is unknown")
        if not leaf.is_leaf:
            return refused(f"partition {self.partition_id} is no longer a leaf")
        if not self.descendants:
            return refused(f"the split of partition {self.partition_id} has no new partitions")
        for partition in self.descendants:
            if find_partition(fold, partition.id) is not None:
                return refused(f"partition id {partition.id} was used before")
        fault = find_subtree_fault(
            self.partition_id, leaf.region, self.descendants, SPLIT_LEVELS_MAX
        )
        return refused(fault) if fault else APPLY

    def apply(self, fold: Fold) -> None:
        leaf = find_partition(fold, self.partition_id)
        assert leaf is not None
        fold.run("UPDATE partitions SET split = ? WHERE key = ?", (fold.next_number, leaf.key))
        fold.run("DELETE FROM unsplittable WHERE partition = ?", (leaf.key,))
        keys = {self.partition_id: leaf.key}
        for partition in self.descendants:
            assert partition.parent_id is not None
            keys[partition.id] = insert_partition(fold, partition, keys[partition.parent_id])


@dataclass(frozen=True, slots=True)
class MarkUnsplittable(Transaction):
    """Marks a leaf as unsplittable at a version. Newer content clears the mark."""

    kind: ClassVar[str] = "mark_unsplittable"
    remembered: ClassVar[bool] = False
    partition_id: Annotated[PartitionId, Member("partition")]
    judged_at: int

    def validate(self, fold: Fold) -> Verdict:
        leaf = find_partition(fold, self.partition_id)
        if leaf is None or not leaf.is_leaf:
            return refused(f"partition {self.partition_id} is no leaf")
        if self.judged_at > fold.number:
            return refused(f"version {self.judged_at} is not reached: the newest is {fold.number}")
        marked = fold.row("SELECT judged_at FROM unsplittable WHERE partition = ?", (leaf.key,))
        if marked and marked[0] >= self.judged_at:
            return already_done(f"judged at {marked[0]} already")
        return APPLY

    def apply(self, fold: Fold) -> None:
        leaf = find_partition(fold, self.partition_id)
        assert leaf is not None
        fold.run("INSERT OR REPLACE INTO unsplittable VALUES (?, ?)", (leaf.key, self.judged_at))
