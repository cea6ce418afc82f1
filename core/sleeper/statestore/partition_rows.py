"""Partitions as rows of the fold."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.statestore.fold import Fold
from sleeper.statestore.tables import range_columns


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with its key; `split` is the number at which it stopped being a leaf."""

    key: int
    split: int | None
    region: Region

    @property
    def is_leaf(self) -> bool:
        return self.split is None


def region_from_columns(columns: Any) -> Region:
    """From min_0, max_0, min_1, ..."""
    return Region(tuple(Range(columns[i], columns[i + 1]) for i in range(0, len(columns), 2)))


def find_partition(fold: Fold, partition_id: PartitionId) -> PartitionRow | None:
    """The partition of that id, leaf or not; None if there never was one."""
    found = fold.row(_find_sql(fold.dimensions), (partition_id,))
    return found and PartitionRow(found[0], found[1], region_from_columns(found[2:]))


def insert_partition(fold: Fold, partition: Partition, parent_key: int | None) -> int:
    """Adds the partition at the transaction being applied; returns its key."""
    ends: list[Any] = []
    for r in partition.region.ranges:
        ends += (r.min, r.max)
    number = fold.next_number
    split = None if partition.is_leaf else number
    row = fold.run(_insert_sql(fold.dimensions), (partition.id, parent_key, number, split, *ends))
    assert row.lastrowid is not None
    return row.lastrowid


def ancestor_keys(fold: Fold, key: int) -> list[int]:
    """Keys of the partition's ancestors, nearest first, without itself."""
    return [
        k
        for (k,) in fold.rows(
            "WITH RECURSIVE chain (key, parent) AS ("
            " SELECT key, parent FROM partitions WHERE key = ?"
            " UNION ALL SELECT p.key, p.parent FROM chain"
            " JOIN partitions p ON p.key = chain.parent)"
            " SELECT key FROM chain",
            (key,),
        )
    ][1:]


@cache
def _find_sql(dimensions: int) -> str:
    return f"SELECT p.key, p.split, {range_columns(dimensions)} FROM partitions p WHERE p.id = ?"


@cache
def _insert_sql(dimensions: int) -> str:
    columns = ", ".join(f"min_{i}, max_{i}" for i in range(dimensions))
    marks = ", ".join("?" * (4 + 2 * dimensions))
    return f"INSERT INTO partitions (id, parent, added, split, {columns}) VALUES ({marks})"
