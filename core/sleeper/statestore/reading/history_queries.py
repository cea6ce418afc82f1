"""The history of a table: what each transaction did."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.transaction import Subject


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


@dataclass(frozen=True, slots=True)
class History:
    """The newest transactions of a table, newest first.

    The state keeps `recorded` transactions like these, and `hidden` others, which are upkeep.
    """

    entries: tuple[HistoryEntry, ...]
    recorded: int
    hidden: int


class HistoryQueries(VersionReader):
    """Queries of the newest state."""

    def newest(self, limit: int, shows_all: bool = False) -> History:
        """Returns the newest transactions, as far as they are kept; without upkeep by default."""
        condition = "TRUE" if shows_all else f"kind NOT IN ({_list(kinds_of(Subject.UPKEEP))})"
        rows = self.rows(
            "SELECT number, time, kind, job, files, rows, bytes FROM history"
            f" WHERE {condition} ORDER BY number DESC LIMIT :limit",
            limit=limit,
        )
        recorded, total = self.row(
            f"SELECT count(*) FILTER (WHERE {condition}), count(*) FROM history"
        )
        return History(tuple(HistoryEntry(*row) for row in rows), recorded, total - recorded)

    def count(self, kinds: Collection[str], after: int, end: int) -> int:
        """Returns how many transactions after `after`, up to `end`, are of the kinds.

        Counts those that the state does not record any more, because they may be. It reads no log.
        """
        oldest, counted = self.row(
            "SELECT (SELECT min(number) FROM history), count(*) FROM history"
            f" WHERE number > :after AND number <= :end AND kind IN ({_list(kinds)})",
            after=after,
            end=end,
        )
        unrecorded = (end if oldest is None else min(end, oldest - 1)) - after
        return int(counted + max(0, unrecorded))

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

    def first(self, kinds: Collection[str], after: int, end: int) -> int | None:
        """Returns the first of the transactions that `count` counts, None without one."""
        oldest, number = self.row(
            "SELECT (SELECT min(number) FROM history), min(number) FROM history"
            f" WHERE number > :after AND number <= :end AND kind IN ({_list(kinds)})",
            after=after,
            end=end,
        )
        is_recorded = oldest is not None and oldest <= after + 1
        return number if is_recorded or after >= end else after + 1


def _list(kinds: Collection[str]) -> str:
    """Returns the kinds, which are names, for SQL."""
    return ", ".join(f"'{kind}'" for kind in sorted(kinds))
