"""Failed receives of messages of local queues: their number, first time and last reason."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Created by the first failure: an older version reads a database with it.
_CREATE = """
CREATE TABLE IF NOT EXISTS failed_receives (
    message_id TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    first_ms INTEGER NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO failed_receives VALUES (:message_id, 1, :now, :reason)
ON CONFLICT DO UPDATE SET count = count + 1, reason = excluded.reason
"""
FIND_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'failed_receives'"
SELECT = "SELECT * FROM failed_receives WHERE message_id IN (SELECT value FROM json_each(?))"
REASON_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class FailedReceives:
    """The failures of one message."""

    count: int
    first_ms: int
    reason: str


def add_failure(transaction: sqlite3.Connection, message_id: str, reason: str, now_ms: int) -> None:
    """Adds a failure of a message."""
    transaction.execute(_CREATE)
    values = {"message_id": message_id, "reason": reason[:REASON_CHARACTERS_MAX], "now": now_ms}
    transaction.execute(_ADD, values)


def find_failures(transaction: sqlite3.Connection, message_id: str) -> FailedReceives | None:
    """Returns the failures of a message, None if it has none."""
    if transaction.execute(FIND_TABLE).fetchone() is None:
        return None
    row = transaction.execute(
        "SELECT * FROM failed_receives WHERE message_id = ?", (message_id,)
    ).fetchone()
    return None if row is None else FailedReceives(row["count"], row["first_ms"], row["reason"])


def forget_failures(transaction: sqlite3.Connection, messages: str, values: Sequence[str]) -> None:
    """Deletes the failures of the messages for which the condition holds."""
    if transaction.execute(FIND_TABLE).fetchone() is not None:
        transaction.execute(
            "DELETE FROM failed_receives WHERE message_id IN"
            f" (SELECT id FROM messages WHERE {messages})",
            tuple(values),
        )


def reasons_by_message(rows: Sequence[sqlite3.Row]) -> Mapping[str, str]:
    """Returns the reasons of the rows of `SELECT`."""
    return {row["message_id"]: row["reason"] for row in rows}
