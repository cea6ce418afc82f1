"""The versions of a snapshot table."""

from dataclasses import dataclass

from sleeper.errors import InvalidRequestError
from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.snapshot_versions import expired_fault, missing_fault


@dataclass(frozen=True, slots=True)
class SnapshotVersion:
    """A version that has not expired; `begun` is the number at which its load began.

    `ended` is the number of the next version, None for the newest. `files`, `rows` and `bytes` are
    those that the load wrote.
    """

    number: int
    begun: int
    published_ms: int
    job: str | None
    files: int
    rows: int
    bytes: int
    ended: int | None
    ended_ms: int | None

    def contains(self, number: int) -> bool:
        """Returns whether the table at the number has the rows of this version."""
        return self.number <= number and (self.ended is None or number < self.ended)


@dataclass(frozen=True, slots=True)
class ExpiredVersion:
    """The newest version of a table whose loads stopped, which has expired."""

    number: int
    expired_ms: int


class SnapshotQueries(VersionReader):
    """Queries of the newest state, and checks of the version."""

    def versions(self) -> list[SnapshotVersion]:
        """Returns the versions that have not expired, newest first."""
        rows = self.rows(
            "SELECT number, begun, time, job, files, rows, bytes, ended, ended_time"
            " FROM snapshot_versions WHERE expired IS NULL ORDER BY number DESC"
        )
        return [SnapshotVersion(*row) for row in rows]

    def expired_newest(self) -> ExpiredVersion | None:
        """Returns the newest version if it has expired."""
        row = self.row(
            "SELECT number, expired_time, expired FROM snapshot_versions"
            " ORDER BY number DESC LIMIT 1"
        )
        return ExpiredVersion(*row[:2]) if row and row[2] is not None else None

    def find_version(self, number: int) -> int:
        """Returns the version whose rows the table has at the number, 0 before the first."""
        row: int | None = self.row(
            "SELECT max(number) FROM snapshot_versions WHERE number <= :number", number=number
        )[0]
        return row or 0

    def find_end(self, number: int) -> int | None:
        """Returns the number at which those rows were replaced or expired, None if they are not."""
        row = self._find_row(number)
        return row[1] if row else None

    def find_change(self, number: int) -> int:
        """Returns the last transaction up to the number that changed what queries return.

        That is the publication of the version, or a delete of rows or a change of fields or
        processing after it. 0 before the first version. A delete is remembered for as long as the
        version is readable and has files that it overlaps.
        """
        row: int = self.row(
            "WITH v (number) AS"
            " (SELECT max(number) FROM snapshot_versions WHERE number <= :number)"
            " SELECT max(coalesce(v.number, 0), coalesce((SELECT max(c.number) FROM ("
            "SELECT number FROM deletes UNION ALL SELECT version FROM schema_versions"
            " UNION ALL SELECT version FROM processing_versions) c"
            " WHERE c.number > v.number AND c.number <= :number), 0)) FROM v",
            number=number,
        )[0]
        return row

    def newest_begun(self) -> int | None:
        """Returns the number at which the newest published load began, expired or not."""
        row: int | None = self.row("SELECT max(begun) FROM snapshot_versions")[0]
        return row

    def find_expiry_fault(self, version: int) -> str | None:
        """Returns why a version is not readable if it is within an expired one."""
        return expired_fault(version, self._find_row(version))

    def check_has_rows(self) -> None:
        """Raises InvalidRequestError if the table has no rows to read at the version."""
        if fault := missing_fault(self._find_row(self.version)):
            raise InvalidRequestError(fault)

    def _find_row(self, version: int) -> tuple[int, int, int, int] | None:
        row: tuple[int, int, int, int] | None = self.row(
            "SELECT number, ended, expired, expired_time FROM snapshot_versions"
            " WHERE number <= :number ORDER BY number DESC LIMIT 1",
            number=version,
        )
        return row
