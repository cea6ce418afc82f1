"""The fold: the rows that a table must have at each version, from its log and the journal.

The log says which submissions were made and in which order, the journal what is in them. A *change*
of the content is a list of chunks, which is kept for every version, so that a restore or a clone
shares the chunks of an earlier one.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from simulation.model.journal import Journal
from simulation.model.submitted import UnknownSubmissionError, stored_rows
from simulation.model.visible import Chunk, Row, visible_rows
from sleeper.processing.field_changes import table_shape
from sleeper.processing.model import Processing
from sleeper.processing.text import processing_from_json
from sleeper.schema.model import Schema
from sleeper.statestore.log import LogEntry
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.codec import decode_entry
from sleeper.statestore.transactions.collection import CollectFiles, RaiseHorizon
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.snapshot_loads import ExpireSnapshots, PublishSnapshot
from sleeper.statestore.transactions.table_definition import ChangeProcessing, InitialiseTable
from sleeper.statestore.transactions.transaction import Transaction
from sleeper.tables import TableId

T = TypeVar("T")
Content = tuple[Chunk, ...]


class Versions(Generic[T]):
    """Values by the number from which on each is valid."""

    def __init__(self, number: int, value: T) -> None:
        self.numbers, self.values = [number], [value]

    def at(self, number: int) -> T:
        """Returns the value at a number, which is not before the first."""
        return self.values[bisect_right(self.numbers, number) - 1]

    def set(self, number: int, value: T) -> None:
        """Makes the value valid from the number on, which is the largest so far."""
        self.numbers.append(number)
        self.values.append(value)

    @property
    def newest(self) -> T:
        return self.values[-1]


@dataclass(slots=True)
class Publication:
    """A version of a snapshot table, the number that ended it, and that of its expiry."""

    number: int
    ended: int | None = None
    expired: int | None = None


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """A transaction with its number, the time of its entry, and those before it in the entry."""

    number: int
    time_ms: int
    transaction: Transaction
    before: Sequence[Transaction]


class TableModel:
    """The content of one table at every version, as its log and the journal have it.

    `first` is the number at which the table begins: 0, or the version that it is a clone of. `log`
    has every transaction after it that was read. `strangers` are those of rows that nobody has
    submitted.
    """

    def __init__(self, table_id: TableId, journal: Journal, first: int = 0) -> None:
        self.id, self.first = table_id, first
        self.number, self.time_ms, self.horizon = first, 0, first
        self.is_snapshot_table = False
        self.publications: list[Publication] = []
        self.log: list[LoggedTransaction] = []
        self.entries: list[LogEntry] = []
        self.strangers: list[LoggedTransaction] = []
        self.contents: Versions[Content] = Versions(first, ())
        self._journal = journal
        self._schemas: Versions[Schema | None] = Versions(first, None)
        self._processing: Versions[Processing] = Versions(first, Processing())
        self._times: Versions[int] = Versions(first, 0)

    @classmethod
    def clone(cls, table_id: TableId, source: "TableModel", version: int) -> "TableModel":
        """Returns the model of a table that begins as a version of another one."""
        result = cls(table_id, source._journal, version)
        result.contents = Versions(version, source.contents.at(version))
        result._schemas = Versions(version, source._schemas.at(version))
        result._processing = Versions(version, source._processing.at(version))
        result.time_ms = source.time_of(version)
        result._times = Versions(version, result.time_ms)
        result.is_snapshot_table = source.is_snapshot_table
        covering = source.publication_at(version)
        if covering is not None:
            in_gap = covering.expired is not None and not source.has_snapshot(version)
            ended = version if in_gap else None
            result.publications = [Publication(version, ended, ended)]
        return result

    def extend(self, entries: Sequence[LogEntry]) -> None:
        """Folds more entries of the log, in order."""
        for entry in entries:
            self.entries.append(entry)
            before: list[Transaction] = []
            for encoded in decode_entry(entry):
                self.number += 1
                logged = LoggedTransaction(
                    self.number, entry.time_ms, encoded.transaction, tuple(before)
                )
                self.log.append(logged)
                before.append(encoded.transaction)
                apply = _APPLY.get(type(encoded.transaction))
                if apply is not None:
                    apply(self, logged)
            self.time_ms = entry.time_ms
            self._times.set(entry.first_number, entry.time_ms)

    def rows(self, version: int | None = None, now_ms: int | None = None) -> Counter[Row]:
        """Returns the rows of a version, each with its count.

        `now_ms` is the time of filters, by default that of the version.
        """
        at = self.number if version is None else version
        time_ms = self.time_of(at) if now_ms is None else now_ms
        chunks = self.contents.at(at)
        return Counter(visible_rows(chunks, self.schema(at), self.processing(at), time_ms))

    def schema(self, version: int | None = None) -> Schema:
        """Returns the schema of a version, by default the newest."""
        schema = self._schemas.at(self.number if version is None else version)
        assert schema is not None, "the table has no first transaction"
        return schema

    def processing(self, version: int) -> Processing:
        """Returns the filters and aggregations of a version."""
        return self._processing.at(version)

    def time_of(self, version: int) -> int:
        """Returns the time of the version's entry."""
        return self._times.at(version)

    def version_at(self, time_ms: int) -> int | None:
        """Returns the last version at or before the time, None if there is none."""
        later = bisect_right(self._times.values, time_ms)
        version = self._times.numbers[later] - 1 if later < len(self._times.values) else self.number
        return version if version >= max(self.first, 1) else None

    def publication_at(self, version: int) -> Publication | None:
        """Returns the version of a snapshot table that was the newest at the number."""
        return next((p for p in reversed(self.publications) if p.number <= version), None)

    def has_snapshot(self, version: int) -> bool:
        """Returns whether there are rows, or none, to read at a version that can be read."""
        if not self.is_snapshot_table:
            return True
        covering = self.publication_at(version)
        return covering is not None and (covering.ended is None or version < covering.ended)

    def is_readable(self, version: int) -> bool:
        """Returns whether a query of the version must return its rows."""
        if not max(1, self.horizon, self.first) <= version <= self.number:
            return False
        covering = self.publication_at(version)
        is_expired = covering is not None and covering.expired is not None
        return not is_expired and self.has_snapshot(version)

    def readable_versions(self) -> list[int]:
        """Returns the versions whose rows a query must return, oldest first."""
        first = max(1, self.horizon, self.first)
        return [each for each in range(first, self.number + 1) if self.is_readable(each)]

    # -- transactions

    def initialise(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, InitialiseTable)
        self._schemas.set(logged.number, transaction.schema)
        self._processing.set(logged.number, processing_from_json(transaction.processing_json))
        self.is_snapshot_table = transaction.table_type is not None

    def change_schema(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, ChangeSchema)
        earlier = [each for each in self._schemas.values if each is not None]
        shape = table_shape(self.schema(), earlier, self._processing.newest)
        after = transaction.after(shape)
        self._schemas.set(logged.number, replace(after.schema, version=logged.number))
        self._processing.set(logged.number, after.processing)

    def change_processing(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, ChangeProcessing)
        after = transaction.after(self._processing.newest)
        self._processing.set(logged.number, after)

    def add(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, AddFiles)
        schema = self._file_schema(transaction)
        try:
            rows = stored_rows(self._journal, transaction, logged.before, schema)
        except UnknownSubmissionError:
            self.strangers.append(logged)
            rows = ()
        chunk = Chunk(logged.number, transaction.id, schema, rows)
        if isinstance(transaction, PublishSnapshot):
            self._publish(logged.number, (chunk,))
        else:
            self.contents.set(logged.number, (*self.contents.newest, chunk))

    def delete(self, logged: LoggedTransaction) -> None:
        deletion = self._journal.deletions.get(logged.transaction.id)
        if deletion is None:
            self.strangers.append(logged)
            return
        keys = len(self.schema().row_keys)
        left = [
            replace(
                chunk,
                rows=tuple(row for row in chunk.rows if not deletion.hides(row.values[:keys])),
            )
            for chunk in self.contents.newest
        ]
        self.contents.set(logged.number, tuple(chunk for chunk in left if chunk.rows))

    def restore(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, RestoreVersion)
        self._publish(logged.number, self.contents.at(transaction.version))

    def reinitialise(self, logged: LoggedTransaction) -> None:
        self._publish(logged.number, ())

    def undo(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, UndoJob)
        left = (c for c in self.contents.newest if c.job_id != transaction.job_id)
        self.contents.set(logged.number, tuple(left))

    def expire(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, ExpireSnapshots)
        for each in self.publications:
            if each.number in transaction.versions and each.expired is None:
                each.expired = logged.number
                if each.ended is None:
                    each.ended = logged.number
                    self.contents.set(logged.number, ())

    def collect(self, logged: LoggedTransaction) -> None:
        transaction = logged.transaction
        assert isinstance(transaction, CollectFiles | RaiseHorizon)
        self.horizon = max(self.horizon, transaction.horizon)

    def _file_schema(self, transaction: AddFiles) -> Schema:
        """Returns the schema that the job's files were written with."""
        if not transaction.files:
            return self.schema()
        return self._schemas.at(transaction.files[0].file.schema_version) or self.schema()

    def _publish(self, number: int, content: Content) -> None:
        """Makes the content that of the table, and a version of a snapshot table."""
        self.contents.set(number, content)
        if self.is_snapshot_table:
            if self.publications and self.publications[-1].ended is None:
                self.publications[-1].ended = number
            self.publications.append(Publication(number))


_APPLY: dict[type[Any], Callable[[TableModel, LoggedTransaction], None]] = {
    InitialiseTable: TableModel.initialise,
    ChangeSchema: TableModel.change_schema,
    ChangeProcessing: TableModel.change_processing,
    AddFiles: TableModel.add,
    PublishSnapshot: TableModel.add,
    DeleteRows: TableModel.delete,
    RestoreVersion: TableModel.restore,
    ReinitialiseTable: TableModel.reinitialise,
    UndoJob: TableModel.undo,
    ExpireSnapshots: TableModel.expire,
    CollectFiles: TableModel.collect,
    RaiseHorizon: TableModel.collect,
}
