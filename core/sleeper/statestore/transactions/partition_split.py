"""The split of a leaf, the mark of an unsplittable one, and the push-down of references."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.partitions.partition import Partition, PartitionId, find_subtree_fault
from sleeper.statestore.fold import Fold
from sleeper.statestore.rows import (
    FileRow,
    PartitionRow,
    find_file,
    find_partition,
    insert_partition,
    insert_reference,
    mark_split,
    remove_reference,
)
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
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
    subject: ClassVar[Subject] = Subject.UPKEEP
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
        mark_split(fold, leaf.key)
        fold.run("DELETE FROM unsplittable WHERE partition = ?", (leaf.key,))
        keys = {self.partition_id: leaf.key}
        for partition in self.descendants:
            assert partition.parent_id is not None
            keys[partition.id] = insert_partition(fold, partition, keys[partition.parent_id])


@dataclass(frozen=True, slots=True)
class MarkUnsplittable(Transaction):
    """Marks a leaf as unsplittable at a version. Newer content clears the mark."""

    kind: ClassVar[str] = "mark_unsplittable"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    partition_id: Annotated[PartitionId, Member("partition")]
    judged_at: int

    def validate(self, fold: Fold) -> Verdict:
        leaf = find_partition(fold, self.partition_id)
        if leaf is None or not leaf.is_leaf:
            return refused(f"partition {self.partition_id} is not a leaf")
        if self.judged_at > fold.number:
            return refused(
                f"version {self.judged_at} does not exist yet: the newest is {fold.number}"
            )
        marked = fold.row("SELECT judged_at FROM unsplittable WHERE partition = ?", (leaf.key,))
        if marked and marked[0] >= self.judged_at:
            return already_done(f"already judged at {marked[0]}")
        return APPLY

    def apply(self, fold: Fold) -> None:
        leaf = find_partition(fold, self.partition_id)
        assert leaf is not None
        fold.run("INSERT OR REPLACE INTO unsplittable VALUES (?, ?)", (leaf.key, self.judged_at))


@dataclass(frozen=True, slots=True)
class ReferenceMove:
    """The move of a file's reference to partitions below, each with estimated rows."""

    path: str
    from_partition_id: Annotated[PartitionId, Member("from")]
    to: tuple[tuple[PartitionId, int], ...]


@dataclass(frozen=True, slots=True)
class PushDownReferences(Transaction):
    """Moves references down. A move of a removed or assigned reference is skipped.

    Refused if a move leaves out part of the file: the targets must contain every leaf below the
    source that overlaps the file's key bounds.
    """

    kind: ClassVar[str] = "push_down_references"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    moves: tuple[ReferenceMove, ...]

    def validate(self, fold: Fold) -> Verdict:
        live = 0
        for move in self.moves:
            result = _movable(fold, move)
            if result is not None:
                fault = _find_move_fault(fold, move, *result)
                if fault:
                    return refused(fault)
                live += 1
        return APPLY if live else already_done("no reference is left to be pushed down")

    def apply(self, fold: Fold) -> None:
        for move in self.moves:
            result = _movable(fold, move)
            if result is None:
                continue
            source, file = result
            for partition_id, rows in move.to:
                target = find_partition(fold, partition_id)
                assert target is not None
                insert_reference(fold, target.key, file.key, rows)
            # before the old reference is removed, so the file always has one
            fold.run(
                "UPDATE files SET references_left = references_left + ? WHERE key = ?",
                (len(move.to), file.key),
            )
            remove_reference(fold, source.key, file.key)


def _movable(fold: Fold, move: ReferenceMove) -> tuple[PartitionRow, FileRow] | None:
    source = find_partition(fold, move.from_partition_id)
    file = find_file(fold, move.path)
    if source is None or file is None:
        return None
    reference = fold.row(
        "SELECT 1 FROM refs WHERE partition = ? AND file = ? AND removed IS NULL AND job IS NULL",
        (source.key, file.key),
    )
    return (source, file) if reference else None


def _find_move_fault(
    fold: Fold, move: ReferenceMove, source: PartitionRow, file: FileRow
) -> str | None:
    targets: list[int] = []
    for partition_id, rows in move.to:
        target = find_partition(fold, partition_id)
        if target is None:
            return f"file {move.path} cannot move to partition {partition_id}, which is unknown"
        if rows < 0:
            return f"file {move.path} cannot have {rows} rows in partition {partition_id}"
        targets.append(target.key)
    if not targets or len(set(targets)) < len(targets):
        return f"file {move.path} must move to one or more partitions, each once"
    reached = fold.rows(
        _walk_sql(fold.dimensions),
        {"source": source.key, "file": file.key, "targets": json.dumps(targets)},
    )
    if {key for key, _, is_target in reached if is_target} != set(targets):
        return (
            f"file {move.path} cannot move from {move.from_partition_id} to a partition that is "
            "not below it, has none of its keys, or is inside another target"
        )
    if any(is_leaf and not is_target for _, is_leaf, is_target in reached):
        return (
            f"file {move.path} has keys below partition {move.from_partition_id} in leaves that "
            "the move leaves out"
        )
    return None


@cache
def _walk_sql(dimensions: int) -> str:
    """Returns SQL for the overlapping partitions below the source, down to targets or leaves."""
    overlap = " AND ".join(
        f"c.min_{i} <= f.largest_{i} AND (c.max_{i} IS NULL OR c.max_{i} > f.smallest_{i})"
        for i in range(dimensions)
    )
    return (
        "WITH RECURSIVE walk (key, is_leaf, is_target) AS ("
        " SELECT :source, 0, 0 UNION ALL"
        " SELECT c.key, c.split IS NULL, c.key IN (SELECT value FROM json_each(:targets))"
        " FROM walk JOIN partitions c ON c.parent = walk.key"
        " JOIN files f ON f.key = :file"
        f" WHERE NOT walk.is_target AND {overlap})"
        " SELECT key, is_leaf, is_target FROM walk WHERE key <> :source"
    )
