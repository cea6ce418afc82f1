"""The port of the transaction log: an ordered, conditional, trimmable list of entries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

ENTRY_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Transactions first_number to last_number, committed together.

    `time_ms` never decreases. `write_id` is unique per commit attempt, so a
    writer recognizes its own entry. `body` is one line of
    JSON per transaction. `previous_write_id` is that of the entry before, None if it is not known
    (the first entry, or one of an older version): it ties entries, copies of the state and
    snapshots to one history, also if a log is restored from a backup.
    """

    first_number: int
    last_number: int
    time_ms: int
    write_id: str
    body: str
    format_version: int = ENTRY_FORMAT_VERSION
    previous_write_id: str | None = None


class TransactionLog(Protocol):
    """One table's log. Raises only `sleeper.errors`.

    Numbers are never reused: trimming does not change the head.
    """

    def head(self) -> int:
        """Returns the number of the last transaction; 0 when empty."""
        ...

    def begin(self, after: int) -> None:
        """Sets the head of an empty log, as if the entries up to `after` were trimmed.

        Does nothing if the log begins there already. ConflictError if its head is elsewhere.
        """
        ...

    def read(self, after: int, limit: int = 100) -> Sequence[LogEntry]:
        """Returns up to `limit` entries after transaction `after`, in order; empty at the head.

        NotFoundError if entries after `after` were trimmed, or if `after` is beyond the head: then
        the log was restored from a backup.
        """
        ...

    def append(self, entry: LogEntry) -> None:
        """Atomically stores the entry and moves the head from first_number - 1 to last_number.

        ConflictError if the head is elsewhere, or its entry has another write id than
        `previous_write_id`. After UnavailableError the outcome is unknown.
        """
        ...

    def start_append(self, entry: LogEntry) -> Callable[[], None]:
        """Starts an append. Returns a function that waits for it, with the errors of `append`.

        Appends to the logs of several tables may share a request if one thread starts them all
        before it waits. One that nobody waits for may be made or not.
        """
        ...

    def trim(self, up_to: int) -> None:
        """Drops the entries whose last number is at most `up_to`. The head stays."""
        ...

    def cursor(self, follower: str) -> int:
        """Returns the position of the follower; 0 if it has none."""
        ...

    def advance(self, follower: str, to: int) -> None:
        """Advances the follower's cursor to `to`; never moves it back."""
        ...

    def used_bodies(self, paths: Sequence[str]) -> set[str]:
        """Returns the objects among `paths` that hold the body of an entry."""
        ...
