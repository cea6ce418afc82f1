"""The tables of a local instance's storage of export queues, and statements on their rows."""

import sqlite3

from sleeper.errors import NotFoundError, did_you_mean
from sleeper.export_queue.store import Position, RegisteredQueue

TABLES = (
    "CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, table_id TEXT NOT NULL,"
    " generation INTEGER NOT NULL, number INTEGER NOT NULL, bucket INTEGER NOT NULL,"
    " is_paused INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS items (queue TEXT NOT NULL, bucket INTEGER NOT NULL,"
    " id TEXT NOT NULL, exports INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " added_ms INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (queue, bucket, id))",
    # The counts of a bucket are read without the contents.
    "CREATE INDEX IF NOT EXISTS items_of_buckets"
    " ON items (queue, bucket, exports, bytes, added_ms)",
    "CREATE TABLE IF NOT EXISTS buckets (queue TEXT NOT NULL, bucket INTEGER NOT NULL,"
    " failures INTEGER NOT NULL DEFAULT 0, refusals INTEGER NOT NULL DEFAULT 0,"
    " error TEXT NOT NULL DEFAULT '', due_ms INTEGER NOT NULL DEFAULT 0, owner TEXT,"
    " process TEXT NOT NULL DEFAULT '', claimed_until_ms INTEGER NOT NULL DEFAULT 0,"
    " deaths INTEGER NOT NULL DEFAULT 0, was_refused INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (queue, bucket)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS dead_letters (position INTEGER PRIMARY KEY AUTOINCREMENT,"
    " queue TEXT NOT NULL, bucket INTEGER NOT NULL, id TEXT NOT NULL, exports INTEGER NOT NULL,"
    " content BLOB NOT NULL, error TEXT NOT NULL, died_ms INTEGER NOT NULL,"
    " UNIQUE (queue, bucket, id))",
)
QUEUE_TABLES = ("queues", "items", "buckets", "dead_letters")


def read_queues(connection: sqlite3.Connection) -> list[RegisteredQueue]:
    """Returns all queues, by name."""
    rows = connection.execute(
        "SELECT name, table_id, generation, number, bucket, is_paused FROM queues ORDER BY name"
    ).fetchall()
    return [
        RegisteredQueue(name, table, generation, Position(number, bucket), bool(paused))
        for name, table, generation, number, bucket, paused in rows
    ]


def find_queue(connection: sqlite3.Connection, name: str) -> RegisteredQueue:
    """Returns the queue of that name. NotFoundError if there is none."""
    queues = read_queues(connection)
    for queue in queues:
        if queue.name == name:
            return queue
    near = did_you_mean(name, [queue.name for queue in queues])
    raise NotFoundError(f"export queue {name!r} does not exist{near}")


def release_claim(connection: sqlite3.Connection, name: str, bucket: int, owner: str) -> None:
    """Ends the claim, if the owner has it."""
    connection.execute(
        "UPDATE buckets SET owner = NULL, claimed_until_ms = 0"
        " WHERE queue = ? AND bucket = ? AND owner = ?",
        (name, bucket, owner),
    )
