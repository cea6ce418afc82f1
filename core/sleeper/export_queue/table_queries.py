"""Queries of a table's export queues."""

from collections.abc import Iterable
from typing import NamedTuple

from sleeper.errors import NotFoundError, did_you_mean
from sleeper.export_queue.transactions import follower_of
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.reading.version_reader import VersionReader


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


_SELECT = (
    "SELECT q.name, q.generation, q.source, q.definition, f.start FROM export_queues q"
    " JOIN followers f ON f.name = :prefix || q.name"
)


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
