"""The history of a table: what each transaction did."""

from collections.abc import Iterable
from dataclasses import dataclass

from sleeper.statestore.reading.version_reader import VersionReader


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The effect of one transaction: `files`, `rows` and `bytes` are those it wrote or removed.

    `kind` is its name in the log, `job` the id of the job or request that committed it. `None`
    means that the transaction has no such amount or job.
    """

    number: int
    time_ms: int
    kind: str
    job: str | None
    files: int | None
    rows: int | None
    bytes: int | None

    @property
    def operation(self) -> str:
        """What the transaction did, in words."""
        return _OPERATIONS.get(self.kind, self.kind.replace("_", " "))


_OPERATIONS = {
    "initialise_table": "create table",
    "add_files": "ingest",
    "assign_files": "create compaction jobs",
    "renew_leases": "renew compaction jobs",
    "shorten_leases": "shorten leases of compaction jobs",
    "release_jobs": "release compaction jobs",
    "commit_compaction": "compaction",
    "collect_files": "collect files",
    "files_collected": "forget collected files",
    "bar_runs": "bar old runs",
    "restore_version": "restore",
    "undo_job": "undo",
    "reinitialise_table": "reinitialise table",
    "publish_snapshot": "load",
    "expire_snapshots": "expire versions",
    "export_rows": "export",
    "check_unchanged": "check rows that were read",
    "record_requests": "record requests",
}


class HistoryQueries(VersionReader):
    """Queries of the newest state."""

    def newest(self, limit: int) -> list[HistoryEntry]:
        """Returns the newest transactions, newest first, as far as they are kept."""
        rows = self.rows(
            "SELECT number, time, kind, job, files, rows, bytes FROM history"
            " ORDER BY number DESC LIMIT :limit",
            limit=limit,
        )
        return [HistoryEntry(*row) for row in rows]

    def count(self) -> int:
        """Returns the number of transactions that are kept."""
        return int(self.row("SELECT count(*) FROM history")[0])

    def times(self, numbers: Iterable[int]) -> list[int]:
        """Returns the time of each transaction, in milliseconds.

        A transaction whose time is not kept any more has that of the first one after it.
        """
        return [self._time(number) for number in numbers]

    def _time(self, number: int) -> int:
        (time_ms,) = self.row(
            "SELECT coalesce((SELECT time FROM history WHERE number = :number),"
            " (SELECT time FROM entry_times WHERE last >= :number ORDER BY last LIMIT 1),"
            " (SELECT time FROM position))",
            number=number,
        )
        return int(time_ms)
