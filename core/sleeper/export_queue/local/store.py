"""The storage of a local instance's export queues: `export-queues.db`, an SQLite database.

The file is created with the first queue. It is apart from the instance's database, because exports
may be large and are written and deleted all the time.
"""

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from sleeper.clock import Clock, system_clock
from sleeper.errors import ConflictError, NotFoundError, StateMovedOnError
from sleeper.export_queue.local.tables import (
    QUEUE_TABLES,
    TABLES,
    find_queue,
    read_queues,
    release_claim,
)
from sleeper.export_queue.store import (
    BucketStatus,
    DeadExports,
    ExportCounts,
    NewDeadLetter,
    NewItem,
    PendingItem,
    Position,
    RegisteredQueue,
)
from sleeper.jobs.process import is_alive, this_process
from sleeper.statestore.database import Database

EXPORTS_FILE = "export-queues.db"


class LocalExportStore:
    """Implements `sleeper.export_queue.store.ExportStore`. Safe for threads and processes."""

    def __init__(self, path: Path, clock: Clock = system_clock, read_only: bool = False) -> None:
        self._path = path
        self._clock = clock
        self._database = Database(path, read_only=read_only)
        self._has_tables = False

    def register(self, name: str, table_id: str) -> RegisteredQueue:
        """See the port."""
        with self._writing() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO queues VALUES (?, ?, 0, 0, 0, 0)", (name, table_id)
            )
            queue = find_queue(connection, name)
        if queue.table_id != table_id:
            raise ConflictError(f"export queue {name!r} already exists, of another table")
        return queue

    def begin(self, name: str, generation: int, position: Position) -> None:
        """See the port."""
        with self._writing() as connection:
            find_queue(connection, name)
            connection.execute(
                "UPDATE queues SET generation = ?, number = ?, bucket = ?"
                " WHERE name = ? AND generation = 0",
                (generation, position.number, position.bucket, name),
            )

    def find(self, name: str) -> RegisteredQueue:
        """See the port."""
        with self._reading() as connection:
            if connection is None:
                raise NotFoundError(f"export queue {name!r} does not exist")
            return find_queue(connection, name)

    def list(self) -> Sequence[RegisteredQueue]:
        """See the port."""
        with self._reading() as connection:
            return [] if connection is None else read_queues(connection)

    def remove(self, name: str, generation: int | None = None) -> None:
        """See the port."""
        if not self._path.exists():
            return
        with self._writing() as connection:
            generations = {each.name: each.generation for each in read_queues(connection)}
            if generation not in (None, generations.get(name)):
                return
            for table in QUEUE_TABLES:
                column = "name" if table == "queues" else "queue"
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))

    def pause(self, name: str, paused: bool) -> None:
        """See the port."""
        with self._changing(name) as connection:
            connection.execute("UPDATE queues SET is_paused = ? WHERE name = ?", (paused, name))

    def add(self, name: str, generation: int, items: Sequence[NewItem], to: Position) -> None:
        """See the port. Items and position are stored in one transaction."""
        now = self._clock()
        with self._changing(name, generation) as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        name,
                        each.bucket,
                        each.stored_id,
                        each.exports,
                        len(each.content),
                        now,
                        each.content,
                    )
                    for each in items
                ],
            )
            connection.execute(
                "UPDATE queues SET number = ?, bucket = ?"
                " WHERE name = ? AND (number, bucket) < (?, ?)",
                (to.number, to.bucket, name, to.number, to.bucket),
            )

    def counts(self, name: str) -> ExportCounts:
        """See the port."""
        with self._reading_queue(name) as connection:
            pending, size = connection.execute(
                "SELECT coalesce(sum(exports), 0), coalesce(sum(bytes), 0) FROM items"
                " WHERE queue = ?",
                (name,),
            ).fetchone()
            (dead,) = connection.execute(
                "SELECT coalesce(sum(exports), 0) FROM dead_letters WHERE queue = ?", (name,)
            ).fetchone()
        return ExportCounts(pending, size, dead)

    def buckets(self, name: str) -> Sequence[BucketStatus]:
        """See the port."""
        now = self._clock()
        with self._reading_queue(name) as connection:
            rows = connection.execute(
                "SELECT i.bucket, count(*), sum(i.exports), sum(i.bytes), min(i.added_ms),"
                " coalesce(b.failures, 0), coalesce(b.refusals, 0), coalesce(b.error, ''),"
                " coalesce(b.due_ms, 0), coalesce(b.claimed_until_ms, 0), coalesce(b.deaths, 0),"
                " coalesce(b.was_refused, 0), coalesce(b.process, '') FROM items i"
                " LEFT JOIN buckets b ON b.queue = i.queue AND b.bucket = i.bucket"
                " WHERE i.queue = ? GROUP BY i.bucket ORDER BY i.bucket",
                (name,),
            ).fetchall()
        alive = cache(is_alive)
        statuses = [(BucketStatus(*row), process) for *row, process in rows]
        return [
            replace(
                status,
                was_refused=bool(status.was_refused),
                claimed_until_ms=(
                    status.claimed_until_ms
                    if status.claimed_until_ms > now and alive(process)
                    else 0
                ),
            )
            for status, process in statuses
        ]

    def claim(self, name: str, bucket: int, owner: str, seconds: float) -> bool:
        """See the port."""
        now = self._clock()
        with self._changing(name) as connection:
            before = connection.execute(
                "SELECT owner, claimed_until_ms, process FROM buckets"
                " WHERE queue = ? AND bucket = ? AND owner IS NOT NULL AND owner <> ?",
                (name, bucket, owner),
            ).fetchone()
            if before is not None and before[1] > now and is_alive(before[2]):
                return False
            connection.execute(
                "INSERT INTO buckets (queue, bucket, owner, process, claimed_until_ms)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET owner = excluded.owner,"
                " process = excluded.process, claimed_until_ms = excluded.claimed_until_ms,"
                " deaths = deaths + ?",
                (
                    name,
                    bucket,
                    owner,
                    this_process(),
                    now + int(seconds * 1000),
                    before is not None,
                ),
            )
            return True

    def release(self, name: str, bucket: int, owner: str) -> None:
        """See the port."""
        with self._writing() as connection:
            release_claim(connection, name, bucket, owner)

    def read(self, name: str, bucket: int, bytes_max: int) -> Sequence[PendingItem]:
        """See the port."""
        items: list[PendingItem] = []
        size = 0
        with self._reading_queue(name) as connection:
            rows = connection.execute(
                "SELECT id, exports, content FROM items WHERE queue = ? AND bucket = ? ORDER BY id",
                (name, bucket),
            )
            for row in rows:
                item = PendingItem(*row)
                size += len(item.content)
                if items and size > bytes_max:
                    break
                items.append(item)
        return items

    def settle(
        self,
        name: str,
        bucket: int,
        owner: str,
        removed: Sequence[str],
        dead: Sequence[NewDeadLetter] = (),
    ) -> None:
        """See the port."""
        now = self._clock()
        with self._owning(name, bucket, owner) as connection:
            connection.executemany(
                "DELETE FROM items WHERE queue = ? AND bucket = ? AND id = ?",
                [(name, bucket, item) for item in removed],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO dead_letters"
                " (queue, bucket, id, exports, content, error, died_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(name, bucket, d.id, d.exports, d.content, d.error, now) for d in dead],
            )
            connection.execute(
                "UPDATE buckets SET failures = 0, refusals = 0, deaths = 0, error = '', due_ms = 0"
                " WHERE queue = ? AND bucket = ?",
                (name, bucket),
            )

    def record_failure(
        self, name: str, bucket: int, owner: str, error: str, is_refusal: bool, due_ms: int
    ) -> None:
        """See the port."""
        with self._owning(name, bucket, owner) as connection:
            connection.execute(
                "UPDATE buckets SET failures = failures + 1, refusals = refusals + :refused,"
                " was_refused = :refused, error = :error, due_ms = :due"
                " WHERE queue = :name AND bucket = :bucket",
                {
                    "refused": is_refusal,
                    "error": error,
                    "due": due_ms,
                    "name": name,
                    "bucket": bucket,
                },
            )
            release_claim(connection, name, bucket, owner)

    def retry_now(self, name: str) -> int:
        """See the port."""
        with self._changing(name) as connection:
            waiting = connection.execute(
                "UPDATE buckets SET due_ms = 0 WHERE queue = ? AND due_ms > 0", (name,)
            )
            return waiting.rowcount

    def dead_letters(self, name: str, limit: int = 100) -> Sequence[DeadExports]:
        """See the port."""
        with self._reading_queue(name) as connection:
            rows = connection.execute(
                "SELECT bucket, id, exports, content, error, died_ms FROM dead_letters"
                " WHERE queue = ? ORDER BY position LIMIT ?",
                (name, limit),
            ).fetchall()
        return [DeadExports(*row) for row in rows]

    def redrive(self, name: str) -> int:
        """See the port."""
        with self._changing(name) as connection:
            # With the end an item follows those that were before it, and never replaces one.
            (exports,) = connection.execute(
                "SELECT coalesce(sum(exports), 0) FROM dead_letters WHERE queue = ?", (name,)
            ).fetchone()
            connection.execute(
                "INSERT INTO items SELECT queue, bucket, id || ?, exports, length(content), ?,"
                " content FROM dead_letters WHERE queue = ?",
                (f"~{secrets.token_hex(6)}", self._clock(), name),
            )
            connection.execute("DELETE FROM dead_letters WHERE queue = ?", (name,))
            return int(exports)

    def sweep(self, name: str) -> int:
        """See the port. Contents are in the database."""
        self.find(name)
        return 0

    def vacuum(self) -> bool:
        """Removes the remains of deleted exports. False if a reader keeps them."""
        return not self._path.exists() or self._database.vacuum()

    def close(self) -> None:
        """Closes the file. Later uses reopen it."""
        self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._database.writing() as connection:
            if not self._has_tables:
                for statement in TABLES:
                    connection.execute(statement)
            yield connection
        self._has_tables = True

    @contextmanager
    def _changing(self, name: str, generation: int | None = None) -> Iterator[sqlite3.Connection]:
        with self._existing_writing(name) as connection:
            queue = find_queue(connection, name)
            if generation is not None and queue.generation != generation:
                raise NotFoundError(
                    f"export queue {name!r} of transaction {generation} does not exist any more"
                )
            yield connection

    @contextmanager
    def _existing_writing(self, name: str) -> Iterator[sqlite3.Connection]:
        if not self._path.exists():
            raise NotFoundError(f"export queue {name!r} does not exist")
        with self._writing() as connection:
            yield connection

    @contextmanager
    def _owning(self, name: str, bucket: int, owner: str) -> Iterator[sqlite3.Connection]:
        with self._changing(name) as connection:
            row = connection.execute(
                "SELECT 1 FROM buckets WHERE queue = ? AND bucket = ? AND owner = ?",
                (name, bucket, owner),
            ).fetchone()
            if row is None:
                raise StateMovedOnError(
                    f"export queue {name!r}: the claim on bucket {bucket} has ended"
                )
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Yields None before the first queue is created."""
        if not self._path.exists():
            yield None
            return
        with self._database.reading() as connection:
            row = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'queues'")
            yield connection if row.fetchone() else None

    @contextmanager
    def _reading_queue(self, name: str) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            if connection is None:
                raise NotFoundError(f"export queue {name!r} does not exist")
            find_queue(connection, name)
            yield connection


def open_local_store(folder: Path, clock: Clock, read_only: bool) -> LocalExportStore:
    """Opens the storage of a local instance."""
    return LocalExportStore(folder / EXPORTS_FILE, clock, read_only)
