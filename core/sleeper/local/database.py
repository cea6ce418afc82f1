"""The instance's SQLite database: connections, transactions, and its tables.

Each thread has its own connection. Each statement of a read sees one state. A write takes SQLite's
write lock at its start, so its reads stay valid until its end.
"""

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sleeper.errors import (
    ConflictError,
    DataError,
    SleeperError,
    UnavailableError,
    read_only_error,
)
from sleeper.retries import Backoff, retry
from sleeper.statestore.database import create_file
from sleeper.statestore.database_errors import (
    damage_error,
    explained,
    is_read_only,
    not_unicode_error,
)
from sleeper.statestore.read_only_file import FrozenFile, cannot_create_wal, find_read_only_source
from sleeper.statestore.wal import BUSY_TIMEOUT_SECONDS, limit_wal, vacuum

FORMAT_VERSION = 1
# Another process may have changed a file that is read without locks.
_READS_AGAIN = Backoff(retries=5, seconds_first=0.01)

Parameters = Sequence[Any] | Mapping[str, Any]
"""The values of a query, by position or by name."""

_TABLES = """
CREATE TABLE IF NOT EXISTS tables (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    online INTEGER NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS tables_by_name ON tables (name) WHERE state = 'active';

CREATE TABLE IF NOT EXISTS messages (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    queue TEXT NOT NULL,
    group_id TEXT,
    body TEXT NOT NULL,
    sent_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,            -- the time from which it can be received
    receives INTEGER NOT NULL DEFAULT 0,
    receipt TEXT UNIQUE,                -- of the last receive, unless returned
    receiver TEXT,                      -- the process that received it
    died_ms INTEGER                     -- set for a dead letter
);
CREATE INDEX IF NOT EXISTS messages_by_queue ON messages (queue, died_ms, position);
CREATE INDEX IF NOT EXISTS messages_by_group ON messages (queue, group_id, died_ms);
CREATE TABLE IF NOT EXISTS deduplications (
    queue TEXT NOT NULL,
    id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (queue, id)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS jobs (
    table_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (table_id, job_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_by_update ON jobs (updated_ms);
CREATE TABLE IF NOT EXISTS job_events (
    table_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    task_id TEXT,
    inputs INTEGER,
    rows_read INTEGER,
    rows_written INTEGER,
    reasons TEXT NOT NULL,
    PRIMARY KEY (table_id, job_id, run_id, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_events_by_task ON job_events (task_id);
CREATE TABLE IF NOT EXISTS task_events (
    task_id TEXT NOT NULL,
    step TEXT NOT NULL,
    kind TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    process TEXT,
    jobs INTEGER,
    rows_read INTEGER,
    rows_written INTEGER,
    reason TEXT,
    PRIMARY KEY (task_id, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS task_events_by_time ON task_events (at_ms);
"""

# SQLite keeps its locks in memory that a fork copies, so a child that opens a file which
# its parent had open believes that it holds the parent's locks, and may destroy the file.
_open_here: set[Path] = set()
_open_in_parent: set[Path] = set()


def _remember_fork() -> None:
    _open_in_parent.update(_open_here)


os.register_at_fork(after_in_child=_remember_fork)


class InstanceDatabase:
    """The database of one instance. Safe for threads, and for any number of processes.

    A `read_only` database changes nothing in its folder, and refuses writes.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._path = path.resolve()
        self.read_only = read_only
        self._local = threading.local()
        self._connections: list[tuple[weakref.ref[_ThreadMark], sqlite3.Connection]] = []
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._path

    def check_writable(self) -> None:
        """Raises InvalidRequestError if the instance was opened read-only."""
        if self.read_only:
            raise read_only_error(self._path.parent)

    def create(self) -> None:
        """Creates the file and its tables if they do not exist."""
        create_file(self._path)
        with self._translate_errors():
            connection = self._connection()
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def create_missing(self, table: str, statements: Sequence[str]) -> None:
        """Runs the statements, which create the table, unless it exists."""
        if self.read("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)):
            return
        with self.write() as transaction:
            for statement in statements:
                transaction.execute(statement)

    def check(self) -> None:
        """DataError unless the file is a database of this version."""
        version = self.read("PRAGMA user_version")[0][0]
        if version != FORMAT_VERSION:
            raise DataError(
                f"{self._path} has format version {version}: this program reads {FORMAT_VERSION}"
            )

    def read(self, sql: str, parameters: Parameters = ()) -> list[sqlite3.Row]:
        """Returns the rows of a query."""
        if self.read_only:
            return retry(
                lambda: self._read(sql, parameters), on=UnavailableError, backoff=_READS_AGAIN
            )
        return self._read(sql, parameters)

    def _read(self, sql: str, parameters: Parameters) -> list[sqlite3.Row]:
        with self._translate_errors():
            source = find_read_only_source(self._path, self.read_only)
            if source is not None:
                return self._read_unchanged(*source, sql, parameters)
            try:
                return self._connection().execute(sql, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if not self._path.exists() or not cannot_create_wal(error):
                    raise
                source = find_read_only_source(self._path, is_required=True)
                assert source is not None
                return self._read_unchanged(*source, sql, parameters)

    def _read_unchanged(
        self, uri: str, frozen: FrozenFile | None, sql: str, parameters: Parameters
    ) -> list[sqlite3.Row]:
        with contextlib.closing(sqlite3.connect(uri, isolation_level=None, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute(sql, parameters).fetchall()
        if frozen is not None:
            frozen.check_unchanged()
        return rows

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Runs one transaction under the write lock, and commits it or rolls it back."""
        self.check_writable()
        with self._translate_errors():
            connection = self._connection()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError) and is_read_only(error):
                    self._close_connection()
                raise

    def vacuum(self) -> bool:
        """Rewrites the file without the remains of deleted rows. False if a reader keeps them."""
        self.check_writable()
        with self._translate_errors():
            return vacuum(self._connection())

    def close(self) -> None:
        """Closes the connections of all threads. The next use opens new ones."""
        with self._lock:
            connections, self._connections = self._connections, []
            self._local = threading.local()
        for _, connection in connections:
            connection.close()
        _open_here.discard(self._path)

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if self._path in _open_in_parent:
            raise SleeperError(
                f"{self._path} was open when this process was forked: start workers with spawn"
            )
        if connection is None:
            _open_here.add(self._path)
            connection = sqlite3.connect(
                self._path,
                timeout=BUSY_TIMEOUT_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA synchronous = FULL")
            try:
                limit_wal(connection)
            except BaseException:
                # It opens the -wal file, for which there may be no space.
                connection.close()
                raise
            self._local.connection, self._local.mark = connection, _ThreadMark()
            with self._lock:
                self._close_connections_of_dead_threads()
                self._connections.append((weakref.ref(self._local.mark), connection))
        return connection

    def _close_connection(self) -> None:
        """Closes the connection of this thread. The next use opens another one."""
        del self._local.connection, self._local.mark
        with self._lock:
            self._close_connections_of_dead_threads()

    def _close_connections_of_dead_threads(self) -> None:
        dead = [each for each in self._connections if each[0]() is None]
        for each in dead:
            each[1].close()
            self._connections.remove(each)

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise ConflictError(f"{self._path}: {error}") from error
        except sqlite3.OperationalError as error:
            raise UnavailableError(explained(self._path, error)) from error
        except sqlite3.DatabaseError as error:
            if hasattr(self._local, "connection"):
                self._close_connection()
            raise damage_error(self._path, error) from error
        except MemoryError as error:
            raise UnavailableError(f"{self._path}: out of memory") from error
        except UnicodeEncodeError as error:
            raise not_unicode_error(error) from error


class _ThreadMark:
    """A local value of a thread, which the thread loses when it ends.

    The module `threading` does not notice the end of a thread that it did not start, such as one
    of Polars or DuckDB.
    """

    __slots__ = ("__weakref__",)
