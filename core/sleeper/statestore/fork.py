"""A fork of a table's state: a version, and transactions after it that no log has.

A fork reads like the state of the table if the transactions were committed after the version. It is
a file of its own, of one process, and nothing of it survives.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from sleeper.clock import Clock
from sleeper.errors import ConflictError
from sleeper.statestore.database import Database
from sleeper.statestore.holds import Hold
from sleeper.statestore.log import LogEntry
from sleeper.statestore.store import StateStore


def open_fork(state: Path, target: Path, version: int, clock: Clock) -> StateStore:
    """Opens a copy of a state that `StateStore.copy_version` has written, at its version.

    The clock tells the time of its transactions.
    """
    shutil.copyfile(state, target)
    log = _MemoryLog(version)
    return StateStore(Database(target, durable=False), log, _NoHolds(), clock)


class _MemoryLog:
    """Implements `sleeper.statestore.log.TransactionLog` for one process."""

    def __init__(self, after: int) -> None:
        self._head = self._start = after
        self._entries: list[LogEntry] = []

    def head(self) -> int:
        return self._head

    def begin(self, after: int) -> None:
        if after != self._start:
            raise ConflictError(f"the log begins after {self._start}, not after {after}")

    def read(self, after: int, limit: int = 100) -> Sequence[LogEntry]:
        return [each for each in self._entries if each.first_number > after][:limit]

    def append(self, entry: LogEntry) -> None:
        if entry.first_number != self._head + 1:
            raise ConflictError(f"transaction {entry.first_number} is taken")
        self._entries.append(entry)
        self._head = entry.last_number

    def start_append(self, entry: LogEntry) -> Callable[[], None]:
        self.append(entry)
        return lambda: None

    def trim(self, up_to: int) -> None:
        """Keeps all entries: a fork has few."""

    def cursor(self, follower: str) -> int:  # noqa: ARG002 (a fork has no followers)
        return 0

    def advance(self, follower: str, to: int) -> None:
        """Keeps nothing: a fork has no followers."""

    def used_bodies(self, paths: Sequence[str]) -> set[str]:  # noqa: ARG002 (bodies are in memory)
        return set()


class _NoHolds:
    """Implements `sleeper.statestore.holds.HoldStore`: the table's own holds keep the files."""

    accepts_writes = False

    def all(self) -> Sequence[Hold]:
        return ()

    def put(self, hold: Hold) -> None:
        """Keeps nothing."""

    def extend(self, hold_id: str, expiry_ms: int) -> bool:  # noqa: ARG002 (there is no hold)
        return False

    def delete(self, hold_ids: Sequence[str]) -> None:
        """Keeps nothing."""

    def forget(self, expiry_max_ms: int) -> None:
        """Keeps nothing."""
