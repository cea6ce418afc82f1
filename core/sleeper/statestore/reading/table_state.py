"""A table's state at one version."""

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypeVar

from sleeper.clock import iso_time
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.processing.field_changes import TableShape, table_shape
from sleeper.processing.model import Processing
from sleeper.processing.text import processing_from_json
from sleeper.schema.model import Schema, schema_from_json
from sleeper.statestore.fold import SNAPSHOT_TABLE, is_jump, jump_error
from sleeper.statestore.holds import Hold
from sleeper.statestore.reading.change_queries import ChangeQueries
from sleeper.statestore.reading.delete_queries import DeleteQueries
from sleeper.statestore.reading.file_queries import FileQueries
from sleeper.statestore.reading.history_queries import HistoryQueries
from sleeper.statestore.reading.newest_queries import CollectionQueries, JobQueries
from sleeper.statestore.reading.partition_queries import PartitionQueries
from sleeper.statestore.reading.snapshot_queries import SnapshotQueries
from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.transaction import Subject
from sleeper.statestore.version import PointInTime, Version


@lru_cache(maxsize=256)
def _parse_schemas(versions: tuple[tuple[int, str], ...]) -> Schema:
    """Returns the last schema of the versions."""
    schemas = [replace(schema_from_json(text), version=version) for version, text in versions]
    return replace(schemas[-1], earlier=tuple(schemas[:-1]))


_FIRST_ENTRY = "SELECT last, time FROM entry_times WHERE last >= ? ORDER BY last LIMIT 1"
_FIRST_ENTRY_TIME = "SELECT time FROM entry_times WHERE last >= :number ORDER BY last LIMIT 1"

Q = TypeVar("Q", bound=VersionReader)


class TableState:
    """Valid within `StateStore.reading` only.

    Queries of `partitions` and `files` read at `version`; `number` is the newest
    transaction; `horizon` the oldest version that can be read; `time_ms` the time of the
    newest entry; runs that began before `run_bar_ms` cannot commit. `jobs` and
    `collection` query the newest state.

    A version below the horizon is readable if one of the holds (`held`) is at or below it. One in
    an expired version of a snapshot table is not.

    InvalidRequestError if the version is not readable, or not reached yet, or the time is before
    that of the oldest readable version; NotFoundError if the table was not initialised.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        version: Version | None = None,
        held: Callable[[], Collection[Hold]] = tuple,
    ) -> None:
        (
            self.number,
            self.time_ms,
            self.horizon,
            self.forgotten_below,
            dimensions,
            self.orphan_age_ms,
            self.run_bar_ms,
            table_type,
        ) = connection.execute(
            "SELECT number, time, horizon, forgotten_below, dimensions, orphan_age, run_bar,"
            " table_type FROM position"
        ).fetchone()
        if dimensions == 0:
            raise NotFoundError("the table has no state: it was not initialised")
        self.oldest_version = max(self.horizon, 1)
        if isinstance(version, PointInTime):
            version = self._find_version(connection, version)
        self.version = self.number if version is None else version
        if self.version > self.number:
            raise InvalidRequestError(
                f"version {version} does not exist yet: the newest is {self.number}"
            )
        self.is_snapshot_table: bool = table_type == SNAPSHOT_TABLE
        self.snapshots = SnapshotQueries(connection, self.version, dimensions)
        self._held = held
        self._check_readable()
        self._reader = VersionReader(connection, self.version, dimensions)
        self.partitions = PartitionQueries(connection, self.version, dimensions)
        self.files = FileQueries(connection, self.version, dimensions)
        self.deletes = DeleteQueries(connection, self.version, dimensions)
        self.changes = ChangeQueries(connection, self.version, dimensions)
        self.jobs = JobQueries(connection, self.version, dimensions)
        self.history = HistoryQueries(connection, self.version, dimensions)
        self.collection = CollectionQueries(connection, self.version, dimensions)

    def _check_readable(self) -> None:
        if self.version < self.oldest_version:
            is_complete = self.version >= max(self.forgotten_below, 1)
            if not is_complete or not self._is_held(self.version):
                raise InvalidRequestError(self._passed_fault(self.version))
        # A hold keeps the files of a read that began before the expiry, but if it was written
        # later, some may be collected, and the state does not know it.
        if fault := self._find_expiry_fault(self.version):
            raise InvalidRequestError(fault)

    def _is_held(self, version: int) -> bool:
        return any(hold.version <= version for hold in self._held())

    def _passed_fault(self, version: int) -> str:
        return (
            f"version {version} is no longer readable: the oldest readable version is "
            f"{self.oldest_version}"
        )

    def _find_expiry_fault(self, version: int) -> str | None:
        return self.snapshots.find_expiry_fault(version) if self.is_snapshot_table else None

    def close(self) -> None:
        """Forgets where holds come from, so that a state that somebody keeps keeps no store."""
        self._held = tuple

    def query(self, kind: type[Q]) -> Q:
        """Returns queries of the version, of another kind."""
        reader = self._reader
        return kind(reader.connection, reader.version, reader.dimensions)

    def _find_version(self, connection: sqlite3.Connection, point: PointInTime) -> int:
        """Returns the number of the last transaction at or before the time."""
        result = self._last_at(connection, point.time_ms)
        if result is None:
            newest = (self.number, self.time_ms)
            oldest = connection.execute(_FIRST_ENTRY, (self.oldest_version,)).fetchone() or newest
            reason = "no longer readable: the oldest readable version, {}, is of {}"
            if self.oldest_version == 1:
                reason = "the table did not exist: its version {} is of {}"
            reason = reason.format(self.oldest_version, iso_time(oldest[1]))
            raise InvalidRequestError(f"as of {point.text}: {reason}")
        return result

    def _last_at(self, connection: sqlite3.Connection, time_ms: int) -> int | None:
        # Times never decrease from entry to entry, so a bisection needs no index on them.
        newest = (self.number, self.time_ms)
        result, low, high = None, self.oldest_version, self.number + 1
        while low < high:
            middle = (low + high) // 2
            last, entry_ms = connection.execute(_FIRST_ENTRY, (middle,)).fetchone() or newest
            if entry_ms > time_ms:
                high = middle
            else:
                result, low = int(last), last + 1
        return result

    def check_has_rows(self) -> None:
        """Raises InvalidRequestError if the version is before the first load of a snapshot table.

        Also if the table's newest version expired. A read of rows calls it.
        """
        if self.is_snapshot_table:
            self.snapshots.check_has_rows()

    def at(self, version: int) -> "TableState":
        """Returns the state at another version, valid as long as this one."""
        return TableState(self._reader.connection, version, self._held)

    def find_fault(self, version: int) -> str | None:
        """Returns why no read may begin at or after a version, whatever is held; None if one may.

        At version 0, before the table's first transaction, only a read of changes begins.
        """
        if version > self.number:
            return f"version {version} does not exist yet: the newest is {self.number}"
        if version < self.horizon:
            return self._passed_fault(version)
        return self._find_expiry_fault(version)

    def last_number_at(self, time_ms: int) -> int | None:
        """Returns the number of the last transaction at or before the time.

        None if the time is before that of the oldest readable version.
        """
        return self._last_at(self._reader.connection, time_ms)

    def moment(self, clock_ms: int) -> int:
        """Returns the later of the clock and the newest entry's time.

        Otherwise a clock that is set back would make every run, lease and hold appear old.
        """
        newest_ms: int = self.time_ms
        return max(clock_ms, newest_ms)

    def run_start(self, clock_ms: int) -> int:
        """Returns the start time of a new run. UnavailableError if its commit would be refused.

        This detects a clock that is implausibly ahead before the work is done.
        """
        if is_jump(clock_ms, self.time_ms):
            raise jump_error(clock_ms, self.time_ms)
        return self.moment(clock_ms)

    def keeps_changes_after(self, start: int) -> bool:
        """Returns whether all changes of rows after the version are available."""
        if self.forgotten_below <= start < self.horizon and self._is_held(start):
            return True
        lost = self.history.count(kinds_of(Subject.ROWS), start, self.horizon)
        return lost == 0

    def check_changes_after(self, start: int) -> None:
        """Raises InvalidRequestError unless all changes after the version are available."""
        if not self.keeps_changes_after(start):
            raise InvalidRequestError(
                f"changes after version {start} are no longer complete: changes are readable "
                f"from version {self.horizon} on"
            )
        if start > self.number:
            raise InvalidRequestError(
                f"version {start} does not exist yet: the newest is {self.number}"
            )

    @cached_property
    def schema(self) -> Schema:
        """The schema at the version, with the earlier ones, which older files have."""
        return self.schema_at(self.version)

    @property
    def newest_schema(self) -> Schema:
        """The schema of the newest transaction."""
        return self.schema_at(self.number)

    def schema_at(self, version: int) -> Schema:
        """Returns the schema at another version, at most the newest."""
        rows = self._reader.rows(
            "SELECT version, json FROM schema_versions WHERE version <= :at ORDER BY version",
            at=version,
        )
        return _parse_schemas(tuple(rows))

    @property
    def table_shape(self) -> TableShape:
        """The schema and processing at the version, for changes of the schema."""
        return table_shape(self.schema, self.schema.earlier, self.processing)

    @cached_property
    def processing_json(self) -> str:
        """Filters and aggregations at the version."""
        return str(
            self._reader.row(
                "SELECT json FROM processing_versions WHERE version <= :n"
                " ORDER BY version DESC LIMIT 1"
            )[0]
        )

    @cached_property
    def processing(self) -> Processing:
        """The filters, aggregations and iterator at the version."""
        return processing_from_json(self.processing_json)

    @cached_property
    def version_time_ms(self) -> int:
        """The time of the version's entry.

        Older versions without a stored time have that of the first entry after.
        """
        return self.entry_time_ms(self.version)

    def entry_time_ms(self, number: int) -> int:
        """Returns the time of the entry of a number, also if its version is not readable."""
        row = self._reader.row(_FIRST_ENTRY_TIME, number=number)
        return int(row[0]) if row else int(self.time_ms)
