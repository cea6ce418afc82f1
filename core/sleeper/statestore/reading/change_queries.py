"""The changes of rows that transactions made: added files, deleted regions and keys."""

from dataclasses import dataclass
from functools import cache

from sleeper.files import DataFile, KeyFile
from sleeper.partitions.region import Region
from sleeper.statestore.fold_tables import range_columns
from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.rows import (
    data_file_columns,
    data_file_from_columns,
    region_from_columns,
    sidecars_from_column,
)
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.restore import REPLACING_KINDS
from sleeper.statestore.transactions.snapshot_loads import PublishSnapshot

_REPLACING = ", ".join(f"'{kind}'" for kind in sorted(REPLACING_KINDS))


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A transaction that changed rows.

    `kind` is its name in the log and `job` the id of its job or request. Both are None if an
    older version of Sleeper committed it.
    """

    number: int
    time_ms: int
    kind: str | None
    job: str | None

    @property
    def is_replacement(self) -> bool:
        """Whether the rows of the table became others, such as those of an older version."""
        return self.kind in REPLACING_KINDS


@dataclass(frozen=True, slots=True)
class LoggedCompaction:
    """A compaction of files in a region. `output` is None if no row remained."""

    number: int
    region: Region
    inputs: tuple[DataFile, ...]
    output: DataFile | None


class ChangeQueries(VersionReader):
    """Queries of the newest state, complete after the horizon."""

    def between(self, start: int, end: int, limit: int) -> list[LoggedChange]:
        """Returns the first transactions after `start`, up to `end`, that changed rows, in order.

        Compactions and splits change no rows and are left out.
        """
        rows = self.rows(
            "SELECT changed.number, coalesce(h.time, (SELECT time FROM entry_times"
            " WHERE last >= changed.number ORDER BY last LIMIT 1), 0), h.kind, h.job FROM ("
            " SELECT added AS number FROM files"
            " WHERE added > :start AND added <= :end AND smallest_number = added"
            " UNION SELECT number FROM deletes"
            " WHERE number > :start AND number <= :end AND since = number"
            " UNION SELECT number FROM history"
            f" WHERE number > :start AND number <= :end AND kind IN ({_REPLACING})"
            " ORDER BY number LIMIT :limit) changed"
            " LEFT JOIN history h ON h.number = changed.number ORDER BY changed.number",
            start=start,
            end=end,
            limit=limit,
        )
        return [LoggedChange(*row) for row in rows]

    def between_versions(self, start: int, end: int, limit: int) -> list[LoggedChange]:
        """As `between`, for a snapshot table: the versions that have not expired, and deletes.

        Complete for every start, because a version replaces everything before it.
        """
        rows = self.rows(
            "SELECT s.number, s.time, :publication, s.job FROM snapshot_versions s"
            " WHERE s.number > :start AND s.number <= :end AND s.expired IS NULL"
            " UNION SELECT h.number, h.time, h.kind, h.job FROM deletes d"
            " JOIN history h ON h.number = d.number"
            " JOIN snapshot_versions s ON s.expired IS NULL AND d.number > s.number"
            " AND (s.ended IS NULL OR d.number < s.ended)"
            " WHERE d.number > :start AND d.number <= :end AND d.since = d.number"
            " ORDER BY 1 LIMIT :limit",
            start=start,
            end=end,
            limit=limit,
            publication=PublishSnapshot.kind,
        )
        return [LoggedChange(*row) for row in rows]

    def last_removal(self, start: int) -> int | None:
        """Returns the newest transaction after `start` that deleted or replaced rows, if any."""
        ((number,),) = self.rows(
            "SELECT max(number) FROM (SELECT number FROM deletes WHERE since = number"
            f" UNION ALL SELECT number FROM history WHERE kind IN ({_REPLACING}))"
            " WHERE number > :start",
            start=start,
        )
        return None if number is None else int(number)

    def files(self, number: int) -> list[DataFile]:
        """Returns the files that the ingest or import of that number added."""
        rows = self.rows(
            f"SELECT {data_file_columns(self.dimensions)} FROM files f"
            " WHERE f.added = :number AND f.smallest_number = f.added ORDER BY f.key",
            number=number,
        )
        return [data_file_from_columns(row) for row in rows]

    def compactions(self, start: int, end: int, limit: int) -> list[LoggedCompaction]:
        """Returns the first compactions after `start`, up to `end`, in order."""
        numbers = self.rows(
            "SELECT number FROM history WHERE number > :start AND number <= :end"
            " AND kind = :kind ORDER BY number LIMIT :limit",
            start=start,
            end=end,
            kind=CommitCompaction.kind,
            limit=limit,
        )
        if not numbers:
            return []
        first, last = numbers[0][0], numbers[-1][0]
        result: dict[int, tuple[Region, list[DataFile], list[DataFile]]] = {}
        for number, is_input, *columns in self.rows(
            _compactions_sql(self.dimensions), first=first, last=last
        ):
            region = region_from_columns(columns[: 2 * self.dimensions])
            file = data_file_from_columns(columns[2 * self.dimensions :])
            _, inputs, outputs = result.setdefault(number, (region, [], []))
            (inputs if is_input else outputs).append(file)
        return [
            LoggedCompaction(number, region, tuple(inputs), next(iter(outputs), None))
            for (number,) in numbers
            for region, inputs, outputs in [result[number]]
        ]

    def deletes(self, number: int) -> tuple[list[Region], list[KeyFile]]:
        """Returns the regions and the files of keys whose rows the transaction deleted."""
        regions, files = [], []
        for path, keys, size, sidecars, *columns in self.rows(
            _deletes_sql(self.dimensions), number=number
        ):
            region = region_from_columns(columns)
            if path is None:
                regions.append(region)
            else:
                sidecar_suffixes = sidecars_from_column(sidecars)
                files.append(KeyFile(path, keys, size, region, sidecar_suffixes))
        return regions, files


@cache
def _compactions_sql(dimensions: int) -> str:
    ranges, files = range_columns(dimensions), data_file_columns(dimensions)
    of_file = "CROSS JOIN partitions p ON p.key = r.partition CROSS JOIN files f ON f.key = r.file"
    return (
        f"SELECT r.removed, 1, {ranges}, {files} FROM refs r {of_file}"
        " WHERE r.removed BETWEEN :first AND :last UNION ALL"
        f" SELECT r.added, 0, {ranges}, {files} FROM refs r {of_file}"
        " WHERE r.added BETWEEN :first AND :last ORDER BY 1, 2"
    )


@cache
def _deletes_sql(dimensions: int) -> str:
    columns = ", ".join(f"min_{i}, max_{i}" for i in range(dimensions))
    return (
        f"SELECT k.path, k.keys, k.bytes, k.sidecars, {columns} FROM deletes d"
        " LEFT JOIN key_files k ON k.key = d.key_file"
        " WHERE d.number = :number AND d.since = d.number ORDER BY d.key"
    )
