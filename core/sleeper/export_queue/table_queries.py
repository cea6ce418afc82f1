"""Queries of a table's export queues."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sleeper.errors import NotFoundError, did_you_mean
from sleeper.export_queue.transactions import (
    COMPACTION_SOURCE,
    TRANSACTION_SOURCE,
    ExportRows,
    follower_of,
)
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.transaction import Subject


class StoredQueue(NamedTuple):
    """A queue as the state has it.

    `generation` is the number of the transaction that created it, and `start` the number after
    which its exports begin. `definition` is JSON.
    """

    name: str
    generation: int
    source: str
    definition: str
    start: int


class Uncaptured(NamedTuple):
    """How many transactions a queue has to capture, and the time of the first, None without one."""

    transactions: int
    since_ms: int | None


_SELECT = (
    "SELECT q.name, q.generation, q.source, q.definition, f.start FROM export_queues q"
    " JOIN followers f ON f.name = :prefix || q.name"
)


def find_kinds(state: TableState, name: str) -> Collection[str]:
    """Returns the kinds of transactions that have exports for the queue of that name."""
    stored = queues_in(state).find_or_none(name)
    return _kinds_of_source(stored.source if stored is not None else "")


def find_uncaptured(state: TableState, queue: StoredQueue, position: int) -> Uncaptured:
    """Returns what the queue has to capture after the position.

    The rest, such as the upkeep of the table, has no exports, but the position passes it too.
    """
    kinds = _kinds_of_source(queue.source)
    count = state.history.count(kinds, position, state.number)
    first = state.history.first(kinds, position, state.number)
    if position < queue.generation and queue.source != TRANSACTION_SOURCE:
        count, first = count + 1, queue.generation  # the rows that the table had
    return Uncaptured(count, None if first is None else state.entry_time_ms(first))


def _kinds_of_source(source: str) -> Collection[str]:
    others = {TRANSACTION_SOURCE: ExportRows.kind, COMPACTION_SOURCE: CommitCompaction.kind}
    return {others[source]} if source in others else kinds_of(Subject.ROWS)


def queues_in(state: TableState) -> "ExportQueries":
    """Returns the queries of the table's export queues, which are those of its newest version."""
    return state.query(ExportQueries)


class ExportQueries(VersionReader):
    """Queries of the newest state."""

    def all(self) -> list[StoredQueue]:
        """Returns all queues, by name."""
        rows = self.rows(f"{_SELECT} ORDER BY q.name", prefix=follower_of(""))
        return [StoredQueue(*row) for row in rows]

    def find(self, name: str) -> StoredQueue:
        """Returns the queue of that name. NotFoundError if the table has none."""
        result = self.find_or_none(name)
        if result is None:
            raise NotFoundError(self._describe_unknown(name, (q.name for q in self.all())))
        return result

    def find_or_none(self, name: str) -> StoredQueue | None:
        """Returns the queue of that name; None if the table has none."""
        row = self.row(f"{_SELECT} WHERE q.name = :name", prefix=follower_of(""), name=name)
        return None if row is None else StoredQueue(*row)

    def _describe_unknown(self, name: str, others: Iterable[str]) -> str:
        names = list(others)
        shown = ", ".join(names) or "none"
        return (
            f"the table has no export queue {name!r}{did_you_mean(name, names)} (expected one of: "
            f"{shown})"
        )
