"""The partition tree at a version."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sleeper.errors import NotFoundError
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Region
from sleeper.statestore.fold_tables import range_columns
from sleeper.statestore.reading.version_reader import VersionReader, current
from sleeper.statestore.rows import region_from_columns


class LeafRows(NamedTuple):
    """The rows of a leaf: of its own references, and its share of its ancestors' files.

    The share assumes that a partition's rows divide evenly among its children.
    """

    partition_id: PartitionId
    rows: int
    rows_above: int

    @property
    def rows_total(self) -> int:
        return self.rows + self.rows_above


@dataclass(frozen=True, slots=True)
class PartitionQueries(VersionReader):
    """Queries of the reader's version. Key order is by min, dimension by dimension."""

    def all(self) -> Iterator[Partition]:
        """Returns every partition, parents before children."""
        return self._partitions("p.added <= :n", "p.key")

    def leaves(self) -> Iterator[Partition]:
        """Returns every leaf, in key order."""
        return self._partitions(current("p", "split"), self._order)

    def with_files(self) -> Iterator[Partition]:
        """Returns every partition that refers to a file, in no order."""
        referring = f"SELECT r.partition FROM refs r WHERE {current('r')}"
        return self._partitions(f"p.key IN ({referring})", "p.key")

    def get(self, partition_id: PartitionId) -> Partition:
        """Returns the partition. NotFoundError if there is none."""
        result = next(
            self._partitions("p.id = :id AND p.added <= :n", "p.key", id=partition_id), None
        )
        if result is None:
            raise NotFoundError(
                f"no partition {partition_id} in the table at version {self.version}"
            )
        return result

    def children(self, partition_id: PartitionId) -> list[Partition]:
        """Returns the children in key order; empty for a leaf."""
        is_child = "p.added <= :n AND p.parent = (SELECT key FROM partitions WHERE id = :id)"
        return list(self._partitions(is_child, self._order, id=partition_id))

    def leaves_overlapping(self, regions: Iterable[Region]) -> list[Partition]:
        """Returns leaves that overlap any of the regions, each once, in key order.

        Walks down the tree for each region, so it costs what the answer is long.
        """
        sql = self._descent(partition_overlap_sql(self.dimensions))
        result = {}
        for region in regions:
            for row in self.rows(sql, **region_parameters(region)):
                result[row[0]] = row
        leaves = [_partition(row) for row in result.values()]
        return sorted(leaves, key=lambda p: [r.min for r in p.region.ranges])

    def lowest_containing(self, region: Region) -> Partition:
        """Returns the lowest partition that contains the region."""
        inside = " AND ".join(
            f"p.min_{i} <= :low_{i} AND (p.max_{i} IS NULL OR p.max_{i} >= :high_{i})"
            for i in range(self.dimensions)
        )
        row = self.row(
            "WITH RECURSIVE walk (key, split, depth) AS ("
            " SELECT p.key, p.split, 0 FROM partitions p WHERE p.parent IS NULL"
            " UNION ALL SELECT p.key, p.split, walk.depth + 1 FROM walk"
            " CROSS JOIN partitions p ON p.parent = walk.key"
            f" WHERE walk.split <= :n AND {inside})"
            f" SELECT {self._select} FROM walk CROSS JOIN partitions p ON p.key = walk.key"
            " LEFT JOIN partitions parent ON parent.key = p.parent"
            " ORDER BY walk.depth DESC LIMIT 1",
            **region_parameters(region),
        )
        return _partition(row)

    def count_overlapping(self, region: Region, limit: int) -> int:
        """Returns the number of leaves that overlap the region, up to a limit."""
        overlap = partition_overlap_sql(self.dimensions)
        # The deepest partition comes first, so the limit is reached without a walk of all.
        (count,) = self.row(
            "SELECT count(*) FROM (WITH RECURSIVE walk (key, split, depth) AS ("
            f" SELECT p.key, p.split, 0 FROM partitions p WHERE p.parent IS NULL AND {overlap}"
            " UNION ALL SELECT p.key, p.split, walk.depth + 1 FROM walk"
            " CROSS JOIN partitions p ON p.parent = walk.key"
            f" WHERE walk.split <= :n AND {overlap} ORDER BY 3 DESC)"
            " SELECT 1 FROM walk WHERE split IS NULL OR split > :n LIMIT :limit)",
            limit=limit,
            **region_parameters(region),
        )
        return int(count)

    def leaf_rows(self) -> Iterator[LeafRows]:
        """Returns rows of every leaf, in no order."""
        return map(
            LeafRows._make,
            self.stream(
                "WITH RECURSIVE walk (key, id, split, own, above) AS ("
                f" SELECT p.key, p.id, p.split, {_OWN_ROWS}, 0.0 FROM partitions p"
                " WHERE p.parent IS NULL UNION ALL"
                f" SELECT p.key, p.id, p.split, {_OWN_ROWS}, (w.own + w.above) /"
                " (SELECT count(*) FROM partitions s WHERE s.parent = w.key)"
                " FROM walk w CROSS JOIN partitions p ON p.parent = w.key WHERE p.added <= :n)"
                " SELECT id, own, CAST(round(above) AS INTEGER) FROM walk"
                " WHERE split IS NULL OR split > :n"
            ),
        )

    def unsplittable(self) -> Iterator[PartitionId]:
        """Returns leaves marked as unsplittable without newer content in them or their ancestors.

        The result is of the newest version, independent of the reader's version.
        """
        rows = self.stream(
            "WITH RECURSIVE chain (leaf, judged_at, key) AS ("
            " SELECT partition, judged_at, partition FROM unsplittable UNION ALL"
            " SELECT leaf, judged_at, p.parent FROM chain"
            " CROSS JOIN partitions p ON p.key = chain.key WHERE p.parent IS NOT NULL)"
            " SELECT l.id FROM unsplittable u CROSS JOIN partitions l ON l.key = u.partition"
            " WHERE u.partition NOT IN ("
            " SELECT leaf FROM chain CROSS JOIN refs r ON r.partition = chain.key"
            " CROSS JOIN files f ON f.key = r.file"
            " WHERE r.removed IS NULL AND f.largest_number > judged_at)"
        )
        return (row[0] for row in rows)

    @property
    def _select(self) -> str:
        return f"p.id, parent.id, p.split, :n, {range_columns(self.dimensions)}"

    def _partitions(self, condition: str, order: str, **parameters: str) -> Iterator[Partition]:
        sql = (
            f"SELECT {self._select} FROM partitions p LEFT JOIN partitions parent"
            f" ON parent.key = p.parent WHERE {condition} ORDER BY {order}"
        )
        return map(_partition, self.stream(sql, **parameters))

    @property
    def _order(self) -> str:
        return ", ".join(f"p.min_{i}" for i in range(self.dimensions))

    def _descent(self, overlap: str) -> str:
        """Returns SQL for the overlapping leaves, by a walk down the tree."""
        return (
            "WITH RECURSIVE walk (key, split) AS ("
            f" SELECT p.key, p.split FROM partitions p WHERE p.parent IS NULL AND {overlap}"
            " UNION ALL SELECT p.key, p.split FROM walk"
            " CROSS JOIN partitions p ON p.parent = walk.key"
            f" WHERE walk.split <= :n AND {overlap})"
            f" SELECT {self._select} FROM walk CROSS JOIN partitions p ON p.key = walk.key"
            " LEFT JOIN partitions parent ON parent.key = p.parent"
            " WHERE walk.split IS NULL OR walk.split > :n"
        )


_OWN_ROWS = (
    f"(SELECT coalesce(sum(r.rows), 0) FROM refs r WHERE r.partition = p.key AND {current('r')})"
)


def region_parameters(region: Region) -> dict[str, Any]:
    """Returns the ends of a region as `:low_0`, `:high_0`, ..."""
    parameters: dict[str, Any] = {}
    for i, r in enumerate(region.ranges):
        parameters[f"low_{i}"] = r.min
        parameters[f"high_{i}"] = r.max
    return parameters


def partition_overlap_sql(dimensions: int) -> str:
    """Returns SQL: partition `p` overlaps the region of `region_parameters`."""
    return " AND ".join(
        f"(:high_{i} IS NULL OR p.min_{i} < :high_{i})"
        f" AND (p.max_{i} IS NULL OR p.max_{i} > :low_{i})"
        for i in range(dimensions)
    )


def _partition(row: Any) -> Partition:
    partition_id, parent_id, split, version, *ranges = row
    is_leaf = split is None or split > version
    return Partition(partition_id, region_from_columns(ranges), parent_id, is_leaf)
