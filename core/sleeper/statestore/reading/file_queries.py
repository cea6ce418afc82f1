"""Data files and references at a version."""

import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sleeper.files import DataFile, FileReference
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Region
from sleeper.statestore.fold_tables import path_hash
from sleeper.statestore.reading.partition_queries import region_parameters
from sleeper.statestore.reading.version_reader import VersionReader, current
from sleeper.statestore.rows import data_file_columns, data_file_from_columns

_LEAVES_PER_QUERY = 1_000
_UNAGGREGATED = (
    "(f.smallest_number = f.added OR f.added <"
    " (SELECT max(version) FROM processing_versions WHERE version <= :n))"
)


class PartitionFile(NamedTuple):
    """A reference for compaction planning: its rows, and the bytes and rows of the file."""

    path: str
    rows: int
    job_id: str | None
    bytes: int
    file_rows: int


class PartitionTotals(NamedTuple):
    """The content of a partition's own references. Bytes are a share of those of their files."""

    partition_id: PartitionId
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The content of a table; `unreferenced_files` await collection."""

    files: int
    references: int
    rows: int
    bytes: int
    partitions: int
    leaves: int
    unreferenced_files: int


class Extent(NamedTuple):
    """The size of a table's referenced files."""

    files: int
    bytes: int
    leaves: int


@dataclass(frozen=True, slots=True)
class FileQueries(VersionReader):
    """Queries of the reader's version, unless stated otherwise."""

    def leaf_files(self, leaf_id: PartitionId, region: Region | None = None) -> list[DataFile]:
        """Returns files that may hold rows of the leaf: referenced by it or by its ancestors.

        Only those whose key bounds overlap the region, if one is given. A file above the
        leaf holds other leaves' rows too: read it within the leaf's region only.
        """
        overlap = "" if region is None else f" AND {file_overlap_sql(self.dimensions)}"
        rows = self.rows(
            f"{_CHAIN} SELECT {data_file_columns(self.dimensions)} FROM chain"
            " CROSS JOIN refs r ON r.partition = chain.key CROSS JOIN files f ON f.key = r.file"
            f" WHERE {current('r')}{overlap} ORDER BY f.key",
            id=leaf_id,
            **({} if region is None else region_parameters(region)),
        )
        return [data_file_from_columns(row) for row in rows]

    def files_by_leaf(
        self, leaf_ids: Sequence[PartitionId], region: Region
    ) -> dict[PartitionId, list[DataFile]]:
        """Returns the `leaf_files` of each leaf that has any, sooner for many leaves."""
        keys: dict[PartitionId, list[int]] = {}
        for start in range(0, len(leaf_ids), _LEAVES_PER_QUERY):
            rows = self.stream(
                f"{_CHAINS} SELECT chain.leaf, f.key FROM chain"
                " CROSS JOIN refs r ON r.partition = chain.key CROSS JOIN files f ON f.key = r.file"
                f" WHERE {current('r')} AND {file_overlap_sql(self.dimensions)} ORDER BY f.key",
                ids=json.dumps(leaf_ids[start : start + _LEAVES_PER_QUERY]),
                **region_parameters(region),
            )
            for leaf_id, key in rows:
                keys.setdefault(leaf_id, []).append(key)
        files = self._files_by_key({key for each in keys.values() for key in each})
        return {leaf_id: [files[key] for key in each] for leaf_id, each in keys.items()}

    def _files_by_key(self, keys: Set[int]) -> dict[int, DataFile]:
        rows = self.stream(
            f"SELECT f.key, {data_file_columns(self.dimensions)} FROM json_each(:keys) e"
            " CROSS JOIN files f ON f.key = e.value",
            keys=json.dumps(list(keys)),
        )
        return {key: data_file_from_columns(columns) for key, *columns in rows}

    def smallest_number(
        self, partition_id: PartitionId, region: Region, without: Sequence[str]
    ) -> int | None:
        """Returns the smallest number of rows that the partition's region may have.

        They are in files of the partition, its ancestors and the partitions below, other than
        `without`. None if there is no such file.
        """
        (smallest,) = self.row(
            f"{_CHAIN}, below (key) AS (SELECT key FROM partitions WHERE id = :id UNION ALL"
            " SELECT p.key FROM below CROSS JOIN partitions p ON p.parent = below.key),"
            " every (key) AS (SELECT key FROM chain UNION SELECT key FROM below)"
            " SELECT min(f.smallest_number) FROM every"
            " CROSS JOIN refs r ON r.partition = every.key CROSS JOIN files f ON f.key = r.file"
            f" WHERE {current('r')} AND {file_overlap_sql(self.dimensions)}"
            " AND f.path NOT IN (SELECT value FROM json_each(:without))",
            id=partition_id,
            without=json.dumps(without),
            **region_parameters(region),
        )
        return None if smallest is None else int(smallest)

    def count_leaf_files(self, leaf_id: PartitionId, limit: int) -> int:
        """Returns the number of files that the leaf and its ancestors reference, up to a limit."""
        (count,) = self.row(
            f"{_CHAIN} SELECT count(*) FROM (SELECT 1 FROM chain"
            " CROSS JOIN refs r ON r.partition = chain.key"
            f" WHERE {current('r')} LIMIT :limit)",
            id=leaf_id,
            limit=limit,
        )
        return int(count)

    def leaf_bytes(self, leaf_id: PartitionId) -> int:
        """Returns an estimate of the leaf's bytes, by the rows of its references.

        Those of an ancestor are halved at each level, as if its tree was even.
        """
        (size,) = self.row(
            f"{_CHAIN} SELECT coalesce("
            "sum(f.bytes * 1.0 * min(r.rows, f.rows) / max(f.rows, 1) / (1 << min(above, 60))), 0)"
            " FROM chain CROSS JOIN refs r ON r.partition = chain.key"
            f" CROSS JOIN files f ON f.key = r.file WHERE {current('r')}",
            id=leaf_id,
        )
        return int(size)

    def all(self) -> Iterator[DataFile]:
        """Returns every file that has a reference, oldest first."""
        sql = (
            f"SELECT {data_file_columns(self.dimensions)} FROM files f WHERE EXISTS"
            f" (SELECT 1 FROM refs r WHERE r.file = f.key AND {current('r')}) ORDER BY f.key"
        )
        return map(data_file_from_columns, self.stream(sql))

    def paths(self) -> Iterator[str]:
        """Returns the paths of every file that has a reference, and of key files of deletes."""
        rows = self.stream(
            "SELECT f.path FROM files f WHERE EXISTS"
            f" (SELECT 1 FROM refs r WHERE r.file = f.key AND {current('r')})"
            " UNION ALL SELECT k.path FROM key_files k WHERE EXISTS (SELECT 1 FROM deletes d"
            " WHERE d.key_file = k.key AND d.since <= :n AND (d.removed IS NULL OR d.removed > :n))"
        )
        return (path for (path,) in rows)

    def has_files_of(self, owner_id: str) -> bool:
        """Returns whether the newest state has files that another table owns."""
        is_owned = "substr(path, 1, length(:prefix)) = :prefix"
        row = self.row(
            f"SELECT 1 FROM files WHERE {is_owned} UNION ALL"
            f" SELECT 1 FROM key_files WHERE {is_owned} LIMIT 1",
            prefix=f"{owner_id}/",
        )
        return row is not None

    def get(self, path: str) -> DataFile | None:
        """Returns the file of that path, referenced or not; None if the newest state has none."""
        row = self.row(
            f"SELECT {data_file_columns(self.dimensions)} FROM files f"
            " WHERE f.path_hash = :hash AND f.path = :path",
            hash=path_hash(path),
            path=path,
        )
        return row and data_file_from_columns(row)

    def references(self) -> Iterator[FileReference]:
        """Returns every reference, ordered by partition."""
        rows = self.stream(
            "SELECT f.path, p.id, r.rows, j.id FROM refs r"
            " CROSS JOIN partitions p ON p.key = r.partition"
            " CROSS JOIN files f ON f.key = r.file LEFT JOIN jobs j ON j.key = r.job"
            f" WHERE {current('r')} ORDER BY r.partition, r.file"
        )
        return (FileReference(*row) for row in rows)

    def referring(self) -> Iterator[tuple[str, PartitionId]]:
        """Returns the file and the partition of every reference, in no order."""
        rows = self.stream(
            "SELECT f.path, p.id FROM refs r CROSS JOIN partitions p ON p.key = r.partition"
            f" CROSS JOIN files f ON f.key = r.file WHERE {current('r')}"
        )
        return (tuple(row) for row in rows)

    def file_references(self, paths: Sequence[str]) -> Iterator[FileReference]:
        """Returns every reference to one of the files, in no order."""
        rows = self.stream(
            "SELECT f.path, p.id, r.rows, j.id FROM json_each(:paths) e CROSS JOIN files f"
            " ON f.path_hash = e.value ->> 0 AND f.path = e.value ->> 1"
            " CROSS JOIN refs r ON r.file = f.key"
            " CROSS JOIN partitions p ON p.key = r.partition"
            f" LEFT JOIN jobs j ON j.key = r.job WHERE {current('r')}",
            paths=_paths_parameter(paths),
        )
        return (FileReference(*row) for row in rows)

    def partition_totals(self) -> Iterator[PartitionTotals]:
        """Returns the content of every partition with references, in no order."""
        rows = self.stream(
            "SELECT p.id, held.rows, held.files, CAST(held.bytes AS INTEGER) FROM ("
            " SELECT r.partition, sum(r.rows) AS rows, count(*) AS files,"
            " sum(f.bytes * 1.0 * min(r.rows, f.rows) / max(f.rows, 1)) AS bytes FROM refs r"
            f" CROSS JOIN files f ON f.key = r.file WHERE {current('r')} GROUP BY r.partition) held"
            " CROSS JOIN partitions p ON p.key = held.partition"
        )
        return map(PartitionTotals._make, rows)

    def leaf_references(self) -> Iterator[tuple[PartitionId, list[PartitionFile]]]:
        """Returns every leaf that has references, with them, oldest file first; leaves in no order.

        One pass in bounded memory: what compaction planning needs.
        """
        return self._references(current("p", "split"))

    def partition_references(self) -> Iterator[tuple[PartitionId, list[PartitionFile]]]:
        """Returns every partition that has references, leaf or not, like `leaf_references`."""
        return self._references("p.added <= :n")

    def _references(self, condition: str) -> Iterator[tuple[PartitionId, list[PartitionFile]]]:
        rows = self.stream(
            "SELECT p.id, f.path, r.rows, j.id, f.bytes, f.rows FROM refs r"
            " CROSS JOIN partitions p ON p.key = r.partition"
            " CROSS JOIN files f ON f.key = r.file LEFT JOIN jobs j ON j.key = r.job"
            f" WHERE {current('r')} AND {condition} ORDER BY r.partition, r.file"
        )
        for partition_id, group in groupby(rows, itemgetter(0)):
            yield partition_id, [PartitionFile(*row[1:]) for row in group]

    def has_unaggregated(self) -> bool:
        """Returns whether a referenced file may have rows that a compaction would aggregate.

        The file has rows as they were ingested, or as the processing before this one left them.
        """
        (found,) = self.row(
            "SELECT EXISTS (SELECT 1 FROM files f WHERE"
            f" {_UNAGGREGATED} AND EXISTS"
            f" (SELECT 1 FROM refs r WHERE r.file = f.key AND {current('r')}))"
        )
        return bool(found)

    def unaggregated_references(self) -> Iterator[tuple[PartitionId, str]]:
        """Yields the unassigned references to such files: each is a partition and a path."""
        return self.stream(
            "SELECT p.id, f.path FROM refs r CROSS JOIN partitions p ON p.key = r.partition"
            " CROSS JOIN files f ON f.key = r.file"
            f" WHERE {current('r')} AND r.job IS NULL"
            f" AND {_UNAGGREGATED} ORDER BY r.partition, r.file"
        )

    def inner_references(self) -> Iterator[tuple[DataFile, FileReference]]:
        """Returns the unassigned references of partitions that are not leaves, in no order."""
        rows = self.stream(
            "SELECT p.id, r.rows,"
            f" {data_file_columns(self.dimensions)} FROM partitions p"
            " CROSS JOIN refs r ON r.partition = p.key CROSS JOIN files f ON f.key = r.file"
            f" WHERE p.added <= :n AND p.split <= :n AND {current('r')} AND r.job IS NULL"
        )
        for partition_id, reference_rows, *columns in rows:
            file = data_file_from_columns(columns)
            yield file, FileReference(file.path, partition_id, reference_rows)

    def has_nested_references(self) -> bool:
        """Returns whether a partition and one of its ancestors have references."""
        row = self.row(
            "WITH RECURSIVE held (key) AS (SELECT DISTINCT partition FROM refs r"
            f" WHERE {current('r')}), above (key) AS ("
            " SELECT p.parent FROM held CROSS JOIN partitions p ON p.key = held.key"
            " WHERE p.parent IS NOT NULL UNION"
            " SELECT p.parent FROM above CROSS JOIN partitions p ON p.key = above.key"
            " WHERE p.parent IS NOT NULL)"
            " SELECT 1 FROM above WHERE key IN (SELECT key FROM held) LIMIT 1"
        )
        return row is not None

    def ingested_after(self, number: int, limit: int) -> list[tuple[int, DataFile]]:
        """Returns the change feed: files that ingests added after `number`, with their numbers.

        Files of compactions hold nothing new and are left out. All files of the last
        number are given, so that it may be somewhat more than `limit`. Complete for any
        number from the horizon on.
        """
        last = self.row(
            "SELECT max(added) FROM (SELECT added FROM files WHERE added > :after AND added <= :n"
            " AND smallest_number = added ORDER BY added LIMIT :limit)",
            after=number,
            limit=limit,
        )[0]
        if last is None:
            return []
        rows = self.rows(
            f"SELECT f.added, {data_file_columns(self.dimensions)} FROM files f"
            " WHERE f.added > :after AND f.added <= :last AND f.smallest_number = f.added"
            " ORDER BY f.added, f.key",
            after=number,
            last=last,
        )
        return [(row[0], data_file_from_columns(row[1:])) for row in rows]

    def known(self, paths: Sequence[str]) -> set[str]:
        """Returns the paths of files and key files in the newest state, referenced or not."""
        matches = "f.path_hash = e.value ->> 0 AND f.path = e.value ->> 1"
        rows = self.rows(
            f"SELECT f.path FROM json_each(:paths) e CROSS JOIN files f ON {matches} UNION ALL"
            f" SELECT f.path FROM json_each(:paths) e CROSS JOIN key_files f ON {matches}",
            paths=_paths_parameter(paths),
        )
        return {path for (path,) in rows}

    def extent(self) -> Extent:
        """Returns the files that have a reference, their bytes, and all leaves."""
        files, size = self.row(
            "SELECT count(*), coalesce(sum(f.bytes), 0) FROM files f WHERE EXISTS"
            f" (SELECT 1 FROM refs r WHERE r.file = f.key AND {current('r')})"
        )
        (leaves,) = self.row(f"SELECT count(*) FROM partitions p WHERE {current('p', 'split')}")
        return Extent(files, size, leaves)

    def totals(self) -> Totals:
        """Returns counts of the newest state. `rows` includes estimates of references."""
        files, size, unreferenced = self.row(
            "SELECT count(*) FILTER (WHERE references_left > 0),"
            " coalesce(sum(bytes) FILTER (WHERE references_left > 0), 0),"
            " count(*) FILTER (WHERE references_left = 0) FROM files"
        )
        references, rows = self.row(
            "SELECT count(*), coalesce(sum(rows), 0) FROM refs WHERE removed IS NULL"
        )
        partitions, leaves = self.row(
            "SELECT count(*), count(*) FILTER (WHERE split IS NULL) FROM partitions"
        )
        return Totals(files, references, rows, size, partitions, leaves, unreferenced)


def _paths_parameter(paths: Sequence[str]) -> str:
    return json.dumps([(path_hash(path), path) for path in paths])


_CHAIN = (
    "WITH RECURSIVE chain (key, parent, above) AS ("
    " SELECT key, parent, 0 FROM partitions WHERE id = :id UNION ALL"
    " SELECT p.key, p.parent, above + 1"
    " FROM chain CROSS JOIN partitions p ON p.key = chain.parent)"
)
"""SQL: a partition and its ancestors, which are so many levels above."""

_CHAINS = (
    "WITH RECURSIVE chain (leaf, key, parent) AS ("
    " SELECT p.id, p.key, p.parent FROM json_each(:ids) e CROSS JOIN partitions p ON p.id = e.value"
    " UNION ALL SELECT leaf, p.key, p.parent"
    " FROM chain CROSS JOIN partitions p ON p.key = chain.parent)"
)
"""SQL: several partitions and their ancestors."""


def file_overlap_sql(dimensions: int) -> str:
    """Returns SQL: the key bounds of file `f` overlap the region of `region_parameters`."""
    return " AND ".join(
        f"f.largest_{i} >= :low_{i} AND (:high_{i} IS NULL OR f.smallest_{i} < :high_{i})"
        for i in range(dimensions)
    )
