"""Deletes of rows that are active at a version."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from sleeper.files import DataFile, KeyFile
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Region
from sleeper.statestore.deletes import file_overlap_sql, partition_overlap_sql
from sleeper.statestore.reading.partition_queries import region_parameters
from sleeper.statestore.reading.version_reader import VersionReader, current
from sleeper.statestore.rows import (
    data_file_columns,
    data_file_from_columns,
    region_from_columns,
    sidecars_from_column,
)


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete of the rows of a region that were committed before its number.

    With `keys`, only rows with a key of that file are deleted, and the region contains them.
    """

    number: int
    region: Region
    keys: KeyFile | None = None


def find_deleted(file: DataFile, deletes: Iterable[Delete]) -> tuple[Delete, ...]:
    """Returns the deletes that may hide rows of the file."""
    applied, low, high = file.applied or 0, file.smallest_key, file.largest_key
    return tuple(d for d in deletes if d.number > applied and d.region.overlaps_bounds(low, high))


def _delete_from_columns(row: Any) -> Delete:
    number, path, keys, size, sidecars, *columns = row
    region = region_from_columns(columns)
    if path is None:
        return Delete(number, region)
    return Delete(number, region, KeyFile(path, keys, size, region, sidecars_from_column(sidecars)))


class DeleteQueries(VersionReader):
    """Queries of the reader's version, unless stated otherwise."""

    def overlapping(self, region: Region, version: int | None = None) -> list[Delete]:
        """Returns the active deletes that overlap the region, in the order of their numbers.

        `version` is by default the reader's. It may be below the horizon: deletes are kept while
        a file needs them.
        """
        rows = self.rows(
            _overlapping_sql(
                self.dimensions, "since <= :at AND (removed IS NULL OR removed > :at)"
            ),
            at=self.version if version is None else version,
            **region_parameters(region),
        )
        return [_delete_from_columns(row) for _, *row in rows]

    def pending_references(self) -> Iterator[tuple[PartitionId, str]]:
        """Yields the unassigned references that a compaction would free of deleted rows.

        Each is a partition and a path. There is a delete of its part of the file's key bounds.
        """
        dimensions = self.dimensions
        return self.stream(
            "SELECT p.id, f.path FROM refs r CROSS JOIN partitions p ON p.key = r.partition"
            " CROSS JOIN files f ON f.key = r.file"
            f" WHERE {current('r')} AND r.job IS NULL AND EXISTS ("
            "SELECT 1 FROM deletes d WHERE d.since <= :n AND (d.removed IS NULL OR d.removed > :n)"
            f" AND d.number > f.applied AND {file_overlap_sql(dimensions)}"
            f" AND {partition_overlap_sql(dimensions)})"
            " ORDER BY r.partition, r.file"
        )

    def hidden_files(self, number_max: int) -> Iterator[DataFile]:
        """Yields the files with a reference that may hold rows of deletes up to the number.

        The deleted rows may lie in a partition whose reference a compaction has removed, so all
        references of such a file keep them on disk.
        """
        sql = (
            f"SELECT {data_file_columns(self.dimensions)} FROM files f WHERE EXISTS"
            f" (SELECT 1 FROM refs r WHERE r.file = f.key AND {current('r')})"
            " AND EXISTS (SELECT 1 FROM deletes d WHERE d.since <= :n"
            " AND (d.removed IS NULL OR d.removed > :n)"
            f" AND {may_have_deleted_sql(self.dimensions)}) ORDER BY f.key"
        )
        return map(data_file_from_columns, self.stream(sql, number_max=number_max))

    def remembered(self, region: Region, number_max: int) -> list[tuple[int, Delete]]:
        """Returns the deletes up to the number that overlap the region, active or not.

        Each has the lowest horizon at which it may be forgotten.
        """
        rows = self.rows(
            _overlapping_sql(self.dimensions, "number <= :number_max"),
            number_max=number_max,
            **region_parameters(region),
        )
        return [(max(row[0], removed or 0), _delete_from_columns(row)) for removed, *row in rows]

    def count(self) -> int:
        """Returns the number of deletes that are active and not forgotten yet."""
        (count,) = self.row(
            "SELECT count(*) FROM deletes WHERE since <= :n AND (removed IS NULL OR removed > :n)"
        )
        return int(count)


@cache
def may_have_deleted_sql(dimensions: int) -> str:
    """Returns SQL: file `f` may hold rows of a delete `d` up to `:number_max`."""
    return f"d.number <= :number_max AND d.number > f.applied AND {file_overlap_sql(dimensions)}"


@cache
def _overlapping_sql(dimensions: int, condition: str) -> str:
    columns = ", ".join(f"min_{i}, max_{i}" for i in range(dimensions))
    overlap = " AND ".join(
        f"(:high_{i} IS NULL OR min_{i} < :high_{i}) AND (max_{i} IS NULL OR max_{i} > :low_{i})"
        for i in range(dimensions)
    )
    return (
        f"SELECT removed, number, k.path, k.keys, k.bytes, k.sidecars, {columns} FROM deletes d"
        " LEFT JOIN key_files k ON k.key = d.key_file"
        f" WHERE {condition} AND {overlap}"
        " ORDER BY number, d.key"
    )
