"""The upkeep of a table from Python: its reports, properties and maintenance."""

from collections.abc import Mapping

from sleeper.admin.properties import change_table_properties, report_table_properties
from sleeper.api.argument_types import check_argument_types
from sleeper.api.report_rows import Report, gather_report
from sleeper.compaction.plan import CreationReport, compact_table
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.collection import CollectionReport
from sleeper.garbage_collection.service import collect_table, expire_table_versions
from sleeper.instance import Instance as Ports
from sleeper.reports.check import CheckReport, check_table
from sleeper.reports.snapshot_versions import gather_snapshot_versions
from sleeper.splitting.service import SplitResult, split_table
from sleeper.statestore.reading.history_queries import HistoryEntry
from sleeper.statestore.reading.snapshot_queries import SnapshotVersion


@check_argument_types
class TableUpkeep:
    """The methods of `Table` that report on it and maintain it."""

    _instance: Ports
    name: str

    def report(self, kind: str = "tables", limit: int | None = None) -> Report:
        """Returns a report on the table: a mapping for each row, as `sleeper report --output json`.

        `kind` is the name of a report, such as `"files"`, `"partitions"`, `"state"`,
        `"ingest-jobs"` or `"compaction-jobs"`, or `"all"`. `limit` is the maximum number of rows.

        Raises `InvalidRequestError` for an unknown name.
        """
        return gather_report(self._instance, kind, self.name, limit)

    def properties(self, only_set: bool = False) -> dict[str, str]:
        """Returns the effective values of all properties as text, by name.

        With `only_set`, those that are not at their default.
        """
        report = report_table_properties(self._instance, self.name)
        chosen = report.only_set() if only_set else report
        return {each.name: each.value for each in chosen.properties}

    def set_properties(self, changes: Mapping[str, str]) -> list[str]:
        """Sets properties by name, and returns warnings. An empty value unsets a property.

        Raises `InvalidRequestError` for an unknown property or a value that is not valid; then
        nothing is changed.
        """
        return list(change_table_properties(self._instance, self.name, changes).warnings)

    def compact(self, full: bool = False) -> CreationReport:
        """Creates the compaction jobs of the table and queues them. Workers run them.

        `full` compacts all files of each leaf into one. `created` of the result is the number of
        jobs. `Instance.run_until_idle` runs them on a local instance.

        Raises `InvalidRequestError` if the table is offline.
        """
        return compact_table(self._instance, self.name, full)

    def split(self) -> list[SplitResult]:
        """Splits the leaves that exceed the table's threshold, and returns a result for each.

        Raises `InvalidRequestError` if the table is offline.
        """
        return split_table(self._instance, self.name)

    def gc(self, dry_run: bool = False) -> CollectionReport:
        """Deletes files that no readable version needs; with `dry_run`, only lists their paths."""
        return collect_table(self._instance, self.name, dry_run)

    def check(self) -> CheckReport:
        """Reads all data files of the newest version and returns their faults.

        Verifies that each file exists, its checksums, its rows with their values, order, bounds and
        partitions, and its sidecars. `findings` of the result has the faults, each with the `path`
        of the file, the `fault` and, if known, the `row_group`. `files` and `rows` count those
        checked.
        """
        return check_table(self._instance, self.name)

    def history(self, limit: int = 50, all: bool = False) -> list[HistoryEntry]:
        """Returns what each of the newest transactions did, newest first.

        These are the changes of rows, fields, processing and readable versions. With `all` they
        include the upkeep: compactions, splits, collections, and followers that come and go.

        An entry has `number`, `time_ms`, `operation` in words, `job`, and the `files`, `rows` and
        `bytes` that the transaction wrote, assigned or removed, `None` if it has none. The state
        keeps the transactions from the oldest readable version on, and at least the newest 1,000.

        Raises `InvalidRequestError` for a negative limit.
        """
        if limit < 0:
            raise InvalidRequestError(f"invalid limit: {limit} (expected 0 or more)")
        with self._instance.table(self.name).state.reading() as state:
            return list(state.history.newest(limit, all).entries)

    def snapshot_versions(self) -> list[SnapshotVersion]:
        """Returns the versions of a snapshot table that have not expired, newest first.

        A version has the `number` of the transaction that published it, a value for `as_of`,
        `published_ms`, the id of its load as `job`, and the `files`, `rows` and `bytes` that the
        load wrote.

        Raises `InvalidRequestError` for another table.
        """
        report = gather_snapshot_versions(self._instance.table(self.name))
        return [each.version for each in report.versions]

    def expire_snapshots(self, dry_run: bool = False) -> list[SnapshotVersion]:
        """Expires the versions of a snapshot table that its properties do not keep.

        The properties are `sleeper.table.snapshot.ttl` and `sleeper.table.snapshot.min.versions`.
        Versions that a hold keeps stay. Expired versions cannot be read, and garbage collection
        deletes their files. Returns the expired versions; with `dry_run`, those that would expire.

        Raises `InvalidRequestError` for another table.
        """
        report = expire_table_versions(self._instance, self.name, dry_run)
        return [each.version for each in report.expired]
