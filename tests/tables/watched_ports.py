"""Ports that count their calls as *ticks* and can kill the process at any of them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleeper.errors import StateMovedOnError
from sleeper.files import StoredObject
from sleeper.jobs.event import JobEvent
from sleeper.local.database import InstanceDatabase
from sleeper.local.trackers import LocalJobTracker
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot
from sleeper.tables import TableId

TABLE_ID = TableId("0a1b2c3d")


class Killed(BaseException):
    """Ends the process under test: no code catches it."""


@dataclass
class Ticks:
    """Counts port calls and raises `Killed` at call `die_at`."""

    count: int = 0
    die_at: int | None = None

    def __call__(self) -> None:
        self.count += 1
        if self.count - 1 == self.die_at:
            raise Killed


class WatchedStore:
    """A state store whose commits tick before and after.

    `before_commit` has actions to run before the next commit of a kind of transaction.
    """

    def __init__(self, inner: StateStore, ticks: Ticks) -> None:
        self._inner = inner
        self._ticks = ticks
        self.before_commit: list[tuple[type[Transaction], Callable[[], object]]] = []
        self.committed: list[Transaction] = []

    def commit(self, *transactions: Transaction) -> list[Outcome]:
        for kind, action in list(self.before_commit):
            if any(isinstance(t, kind) for t in transactions):
                self.before_commit.remove((kind, action))
                action()
        self._ticks()
        outcomes = self._inner.commit(*transactions)
        self.committed += transactions
        self._ticks()
        return outcomes

    def commit_or_raise(self, transaction: Transaction) -> int | None:
        (outcome,) = self.commit(transaction)
        if outcome.refused:
            raise StateMovedOnError(f"{transaction.kind} {transaction.id}: {outcome.reason}")
        return outcome.number

    @contextlib.contextmanager
    def reading(self, version: int | None = None, stale: bool = False) -> Iterator[TableState]:
        self._ticks()
        with self._inner.reading(version, stale) as state:
            yield state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WatchedRoot(DataRoot):
    """A data root whose writes and deletions tick; an interrupted write leaves half an object."""

    def __init__(self, place: Path | Bucket, ticks: Ticks) -> None:
        super().__init__(place)
        self.folder = Path(self.url_of(""))
        self._ticks = ticks

    @contextlib.contextmanager
    def sink(self, path: str, syncs: bool = True) -> Iterator[Any]:
        self._ticks()
        with super().sink(path, syncs) as sink:
            yield sink
        self._ticks()

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self._ticks()
            super().delete([path])

    def objects(self, table_id: TableId = TABLE_ID) -> list[StoredObject]:
        """Lists the objects below the table's folder."""
        self._ticks()
        return sorted(self.list_objects(table_id), key=lambda o: o.path)


class WatchedTracker(LocalJobTracker):
    """A job tracker whose writes tick. Tests may replace its methods."""

    # The tracker is a frozen dataclass.
    __setattr__ = object.__setattr__

    def __init__(self, database: InstanceDatabase, ticks: Ticks) -> None:
        super().__init__(database)
        self._ticks = ticks

    def record(self, *events: JobEvent) -> None:
        self._ticks()
        super().record(*events)
        self._ticks()
