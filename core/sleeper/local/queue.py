"""Message queues in SQLite: visibility timeouts, FIFO groups, dead letters."""

import contextlib
import json
import secrets
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sleeper.clock import Clock, system_clock
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError, UnavailableError
from sleeper.jobs.process import is_alive, this_process
from sleeper.jobs.queue import (
    MESSAGE_BYTES_MAX,
    DeadLetter,
    Failure,
    Message,
    QueueCounts,
    QueueSettings,
)
from sleeper.local.database import InstanceDatabase
from sleeper.local.failed_receives import (
    FIND_TABLE,
    SELECT,
    add_failure,
    find_failures,
    forget_failures,
    reasons_by_message,
)

_NO_FAILURE = "no failure is recorded: each of its workers died or was interrupted"
_DEDUPLICATION_MS = 5 * 60 * 1000
# No sender or retry delays a message for longer, except by a visibility timeout.
_DELAY_SECONDS_MAX = 900
# A clock that was ahead for a while has delayed messages until then.
_PARKED = "(died_ms IS NULL AND receipt IS NULL AND due_ms > :latest)"
# A message is receivable if it is due and no other message of its FIFO group is in flight, or is
# before it and not due.
_RECEIVABLE = """
SELECT * FROM messages AS m
WHERE queue = :queue AND died_ms IS NULL AND due_ms <= :now AND NOT EXISTS (
    SELECT 1 FROM messages AS other
    WHERE other.queue = m.queue AND other.group_id = m.group_id AND other.died_ms IS NULL
      AND other.due_ms > :now AND (other.receipt IS NOT NULL OR other.position < m.position))
ORDER BY position LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """Implements `sleeper.jobs.queue.MessageQueue`. A waiting receiver polls the database."""

    database: InstanceDatabase
    name: str
    settings: QueueSettings
    clock: Clock = system_clock
    poll_seconds: float = 0.1

    def send(
        self,
        body: str,
        delay_seconds: float = 0,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        self._check_group(group is not None)
        self._check_deduplication(deduplication_id is not None)
        with self.database.write() as transaction:
            return self._add(transaction, body, group, deduplication_id, int(delay_seconds * 1000))

    def send_all(
        self,
        bodies: Sequence[str],
        groups: Sequence[str] | None = None,
        deduplication_ids: Sequence[str] | None = None,
    ) -> None:
        """See the port. All messages are sent or none."""
        self._check_group(groups is not None)
        self._check_deduplication(deduplication_ids is not None)
        nothing = [None] * len(bodies)
        members = zip(bodies, groups or nothing, deduplication_ids or nothing, strict=True)
        with self.database.write() as transaction:
            for body, group, deduplication_id in members:
                self._add(transaction, body, group, deduplication_id)

    def receive(self, messages_max: int = 1, wait_seconds: float = 0) -> tuple[Message, ...]:
        deadline = time.monotonic() + wait_seconds
        while True:
            received = self._receive_now(messages_max)
            left = deadline - time.monotonic()
            if received or left <= 0:
                return received
            time.sleep(min(self.poll_seconds, left))

    def extend(self, receipt: str, seconds: float) -> None:
        with self.database.write() as transaction:
            held = transaction.execute(
                "UPDATE messages SET due_ms = ? WHERE queue = ? AND receipt = ?",
                (self.clock() + int(seconds * 1000), self.name, receipt),
            )
            if held.rowcount == 0:
                raise StateMovedOnError(
                    f"queue {self.name!r}: the message with receipt {receipt} is no longer held"
                )

    def delete(self, receipt: str) -> None:
        with self.database.write() as transaction:
            forget_failures(transaction, "queue = ? AND receipt = ?", (self.name, receipt))
            transaction.execute(
                "DELETE FROM messages WHERE queue = ? AND receipt = ?", (self.name, receipt)
            )

    def release(
        self, receipt: str, delay_seconds: float = 0, failure: Failure | None = None
    ) -> None:
        """See the port. After its last receive the message is a dead letter at once."""
        parameters = {
            **self._parameters(),
            "receipt": receipt,
            "due": self.clock() + int(delay_seconds * 1000),
            "uncounted": int(failure is not None and not failure.is_counted),
        }
        with self.database.write() as transaction:
            held = "WHERE queue = :queue AND receipt = :receipt"
            row = transaction.execute(f"SELECT id FROM messages {held}", parameters).fetchone()
            if row is None:
                return
            if failure is not None:
                add_failure(transaction, row["id"], failure.reason, self.clock())
            transaction.execute(
                "UPDATE messages SET receipt = NULL, receiver = NULL,"
                " receives = receives - :uncounted,"
                " due_ms = CASE WHEN receives - :uncounted >= :max THEN :now ELSE :due END"
                f" {held}",
                parameters,
            )

    def counts(self) -> QueueCounts:
        dead = "died_ms IS NOT NULL OR (receives >= :max AND due_ms <= :now)"
        (row,) = self.database.read(
            f"""SELECT
                count(*) FILTER (WHERE {dead}) AS dead,
                count(*) FILTER (WHERE NOT ({dead}) AND due_ms <= :now) AS visible,
                count(*) FILTER (WHERE due_ms > :now AND receipt IS NOT NULL) AS in_flight,
                count(*) FILTER (
                    WHERE died_ms IS NULL AND due_ms > :now AND receipt IS NULL) AS delayed
            FROM messages WHERE queue = :queue""",
            self._parameters(),
        )
        return QueueCounts(row["visible"], row["in_flight"], row["delayed"], row["dead"])

    def _check_group(self, is_given: bool) -> None:
        if self.settings.fifo != is_given:
            needed = "needs a group" if self.settings.fifo else "is not FIFO and takes no group"
            raise InvalidRequestError(f"queue {self.name!r} {needed}")

    def _check_deduplication(self, is_given: bool) -> None:
        if is_given and not self.settings.fifo:
            raise InvalidRequestError(
                f"queue {self.name!r} is not FIFO and takes no deduplication id"
            )

    def _add(
        self,
        transaction: sqlite3.Connection,
        body: str,
        group: str | None,
        deduplication_id: str | None,
        delay_ms: int = 0,
    ) -> str:
        """Adds a message unless its deduplication id repeats; returns the id of the first one."""
        message_id, now = secrets.token_hex(12), self.clock()
        if deduplication_id is not None:
            first = self._first_message_id(transaction, deduplication_id, message_id, now)
            if first is not None:
                return first
        transaction.execute(
            "INSERT INTO messages (id, queue, group_id, body, sent_ms, due_ms)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (message_id, self.name, group, body, now, now + delay_ms),
        )
        return message_id

    def _receive_now(self, messages_max: int) -> tuple[Message, ...]:
        # A read without the write lock, so that idle receivers do not block writers.
        parameters = {**self._parameters(), "limit": messages_max}
        if not self.database.read(
            "SELECT 1 FROM messages WHERE queue = :queue AND died_ms IS NULL"
            f" AND (due_ms <= :now OR {_PARKED}) LIMIT 1",
            parameters,
        ):
            return ()
        with self.database.write() as transaction:
            transaction.execute(
                f"UPDATE messages SET due_ms = :now WHERE queue = :queue AND {_PARKED}", parameters
            )
            bury(transaction, parameters)
            rows = transaction.execute(_RECEIVABLE, parameters).fetchall()
            return tuple(self._take(transaction, row) for row in rows)

    def _take(self, transaction: sqlite3.Connection, row: sqlite3.Row) -> Message:
        receipt = secrets.token_hex(12)
        transaction.execute(
            "UPDATE messages SET receipt = ?, receiver = ?, receives = receives + 1, due_ms = ?"
            " WHERE position = ?",
            (
                receipt,
                this_process(),
                self.clock() + self.settings.visibility_timeout_seconds * 1000,
                row["position"],
            ),
        )
        failed = find_failures(transaction, row["id"])
        return Message(
            message_id=row["id"],
            body=row["body"],
            receipt=receipt,
            receives=row["receives"] + 1,
            sent_ms=row["sent_ms"],
            group=row["group_id"],
            failures=failed.count if failed else 0,
            first_failed_ms=failed.first_ms if failed else None,
        )

    def _first_message_id(
        self, transaction: sqlite3.Connection, deduplication_id: str, message_id: str, now: int
    ) -> str | None:
        transaction.execute("DELETE FROM deduplications WHERE until_ms <= ?", (now,))
        row = transaction.execute(
            "SELECT message_id FROM deduplications WHERE queue = ? AND id = ?",
            (self.name, deduplication_id),
        ).fetchone()
        if row is not None:
            return str(row["message_id"])
        transaction.execute(
            "INSERT INTO deduplications (queue, id, message_id, until_ms) VALUES (?, ?, ?, ?)",
            (self.name, deduplication_id, message_id, now + _DEDUPLICATION_MS),
        )
        return None

    def _parameters(self) -> dict[str, str | int]:
        now = self.clock()
        longest_seconds = max(self.settings.visibility_timeout_seconds, _DELAY_SECONDS_MAX)
        return {
            "queue": self.name,
            "now": now,
            "latest": now + longest_seconds * 1000,
            "max": self.settings.receives_max,
        }


@dataclass(frozen=True, slots=True)
class LocalDeadLetters:
    """Implements `sleeper.jobs.queue.DeadLetters` for one queue."""

    database: InstanceDatabase
    name: str
    settings: QueueSettings
    clock: Clock = system_clock

    def list(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """See the port. In a read-only folder newly dead messages are missing."""
        if not self.database.read_only:
            with contextlib.suppress(UnavailableError):
                self._bury()
        rows = self.database.read(
            "SELECT * FROM messages WHERE queue = ? AND died_ms IS NOT NULL"
            " ORDER BY position LIMIT ?",
            (self.name, limit),
        )
        reasons = self._find_reasons([row["id"] for row in rows])
        return tuple(
            DeadLetter(
                message_id=row["id"],
                body=row["body"],
                receives=row["receives"],
                sent_ms=row["sent_ms"],
                died_ms=row["died_ms"],
                group=row["group_id"],
                reason=reasons.get(row["id"], _NO_FAILURE),
            )
            for row in rows
        )

    def redrive(self) -> int:
        self._bury()
        with self.database.write() as transaction:
            forget_failures(transaction, "queue = ? AND died_ms IS NOT NULL", (self.name,))
            return transaction.execute(
                "UPDATE messages SET died_ms = NULL, receives = 0, due_ms = ?"
                " WHERE queue = ? AND died_ms IS NOT NULL",
                (self.clock(), self.name),
            ).rowcount

    def delete(self, message_id: str) -> None:
        dead = "queue = ? AND id = ? AND died_ms IS NOT NULL"
        with self.database.write() as transaction:
            forget_failures(transaction, dead, (self.name, message_id))
            deleted = transaction.execute(
                f"DELETE FROM messages WHERE {dead}", (self.name, message_id)
            )
            if deleted.rowcount == 0:
                raise NotFoundError(f"queue {self.name!r} has no dead letter {message_id!r}")

    def _find_reasons(self, message_ids: Sequence[str]) -> Mapping[str, str]:
        if not self.database.read(FIND_TABLE):
            return {}
        return reasons_by_message(self.database.read(SELECT, (json.dumps(message_ids),)))

    def _bury(self) -> None:
        with self.database.write() as transaction:
            bury(
                transaction,
                {
                    "queue": self.name,
                    "now": self.clock(),
                    "max": self.settings.receives_max,
                },
            )


def bury(transaction: sqlite3.Connection, parameters: dict[str, str | int]) -> None:
    """Makes dead letters of due messages that reached their number of receives."""
    transaction.execute(
        "UPDATE messages SET died_ms = :now, receipt = NULL, receiver = NULL"
        " WHERE queue = :queue AND died_ms IS NULL AND due_ms <= :now AND receives >= :max",
        parameters,
    )


def release_dead_receivers(database: InstanceDatabase, clock: Clock = system_clock) -> int:
    """Makes messages that dead processes received visible; returns how many."""
    holding = "died_ms IS NULL AND receipt IS NOT NULL"
    receivers = database.read(f"SELECT DISTINCT receiver FROM messages WHERE {holding}")
    dead = [row["receiver"] for row in receivers if not is_alive(row["receiver"])]
    if not dead:
        return 0
    released = 0
    with database.write() as transaction:
        for receiver in dead:
            released += transaction.execute(
                "UPDATE messages SET receipt = NULL, receiver = NULL, due_ms = ?"
                f" WHERE receiver = ? AND {holding}",
                (clock(), receiver),
            ).rowcount
    return released


class LocalResultsQueue:
    """Implements `sleeper.jobs.queue.ResultsQueue`. The first message creates the queue.

    It is separate from the instance's own queues, even under the same name.
    """

    def __init__(self, database: InstanceDatabase, url: str, clock: Clock = system_clock) -> None:
        self.queue = LocalQueue(database, f"results:{url}", QueueSettings(), clock)

    @property
    def message_bytes_max(self) -> int:
        return MESSAGE_BYTES_MAX

    def send_all(self, bodies: Sequence[str]) -> None:
        self.queue.send_all(bodies)
