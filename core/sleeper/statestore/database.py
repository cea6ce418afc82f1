"""A SQLite file with one writer and many readers, among threads and processes."""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from sleeper.errors import (
    UnavailableError,
    read_only_error,
)
from sleeper.statestore.database_errors import is_read_only, translated_errors
from sleeper.statestore.read_only_file import (
    FrozenFile,
    cannot_create_wal,
    find_read_only_source,
)
from sleeper.statestore.turns import Turns
from sleeper.statestore.wal import BUSY_TIMEOUT_SECONDS, limit_wal, truncate_wal, vacuum
from sleeper.statestore.write_lock import WriteLock

_CACHE_KIB = 16_384
# SQLite moves the -wal file into the database at this size, and overwrites it.
_CHECKPOINT_PAGES = 1_000
_CACHED_STATEMENTS = 256
IDLE_READERS_MAX = 3
"""The number of reading connections that a database keeps open for the next readers."""

C = TypeVar("C", bound=sqlite3.Connection)


class _Connection(sqlite3.Connection):
    """A connection of this module."""


class _ReadingConnection(_Connection):
    """A connection that tracks its open cursors.

    An unfinished cursor keeps the read snapshot open past the ROLLBACK, so the next reader of the
    connection would read old data.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.frozen: FrozenFile | None = None
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, parameters)
        self._cursors.add(cursor)
        return cursor

    def close_cursors(self) -> None:
        for cursor in list(self._cursors):
            cursor.close()
        self._cursors.clear()


class Database:
    """A database, opened on first use. A forked process needs its own instance.

    Writers queue on a lock file beside the database, because SQLite's busy handler polls.
    `durable` transactions survive a power failure; others survive only a crash of the process.
    Write transactions of databases with the same `turns` take turns. A `read_only` database changes
    nothing in its folder, and refuses writes with InvalidRequestError.
    """

    def __init__(
        self,
        path: Path,
        durable: bool = True,
        turns: Turns | None = None,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._durable = durable
        self._turns = turns
        self._writer_lock = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self.lock_path = path.with_name(f"{path.name}.lock")
        self._lock = WriteLock(self.lock_path)
        self._is_locked = False
        self._writing_thread: int | None = None
        self._idle_readers: list[_ReadingConnection] = []

    def check_writable(self) -> None:
        """Raises InvalidRequestError if the database was opened read-only."""
        if self.read_only:
            raise read_only_error(self.path)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yields a write transaction, committed at the end and rolled back on an exception.

        Nested calls of a thread join its transaction.
        """
        with self._writer_lock:
            if self._writing_thread is not None:
                assert self._writer is not None
                yield self._writer
                return
            with (
                translated_errors(self.path, self._close_connections),
                self.locked(),
                self._turn(),
            ):
                connection = self._open_writer()
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    self._writing_thread = threading.get_ident()
                    yield connection
                    connection.execute("COMMIT")
                except sqlite3.OperationalError as error:
                    if is_read_only(error):
                        # Readers too, because the process maps the -shm file once.
                        self._close_connections()
                    raise
                finally:
                    self._writing_thread = None
                    if self._writer is connection and connection.in_transaction:
                        with suppress(sqlite3.Error):
                            connection.execute("ROLLBACK")

    def paused(self) -> AbstractContextManager[None]:
        """Lets databases with the same turns be written during a wait within `writing`."""
        return nullcontext() if self._turns is None else self._turns.paused()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields a read transaction with snapshot isolation."""
        with translated_errors(self.path, self._close_readers):
            connection = self._reader()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.close_cursors()
                if connection.in_transaction:  # SQLite has ended it after some errors
                    connection.execute("ROLLBACK")
                if connection.frozen is None:
                    self._keep_reader(connection)
                else:
                    connection.close()
            if connection.frozen is not None:
                connection.frozen.check_unchanged()

    def read_rows(self, sql: str) -> list[Any]:
        """Returns the rows of one statement, which is a read transaction of its own.

        It takes a third of the time of `reading`.
        """
        with translated_errors(self.path, self._close_readers):
            connection = self._reader()
            if connection.frozen is not None:
                connection.close()
                with self.reading() as frozen:
                    return frozen.execute(sql).fetchall()
            try:
                # All rows are fetched, because an unfinished cursor would keep the snapshot open.
                return sqlite3.Connection.execute(connection, sql).fetchall()
            finally:
                self._keep_reader(connection)

    @contextmanager
    def reading_or_writing(self) -> Iterator[sqlite3.Connection]:
        """Yields the write transaction of this thread if there is one, else a read transaction."""
        if self._writing_thread == threading.get_ident():
            assert self._writer is not None
            yield self._writer
        else:
            with self.reading() as connection:
                yield connection

    @contextmanager
    def exclusively(self) -> Iterator[sqlite3.Connection]:
        """Yields the writer's connection under the lock, without a transaction."""
        with self._writer_lock, translated_errors(self.path), self.locked():
            yield self._open_writer()

    def vacuum(self) -> bool:
        """Rewrites the file without the remains of deleted rows, and empties its -wal file.

        Returns False if a reader of another process keeps the -wal file. Needs disk space for
        another copy.
        """
        with self.exclusively() as connection:
            return vacuum(connection)

    def truncate_wal(self) -> bool:
        """Empties the -wal file, which takes disk space. False if a reader keeps it."""
        with self.exclusively() as connection:
            return truncate_wal(connection)

    def close(self) -> None:
        """Closes every connection. Later uses reopen them."""
        with self._writer_lock:
            self._close_connections()
            self._lock.close()

    def _close_readers(self) -> None:
        with suppress(IndexError):  # a thread takes the last one
            while True:
                self._idle_readers.pop().close()

    def _close_connections(self) -> None:
        self._close_readers()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextmanager
    def try_locking(self) -> Iterator[bool]:
        """Takes the lock for several transactions; yields False if another process has it."""
        self.check_writable()
        with self._writer_lock:
            if self._is_locked:
                yield True
                return
            if not self._lock.try_acquire():
                yield False
                return
            with self._held():
                yield True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Takes the lock for several transactions, after the processes that wait for it."""
        self.check_writable()
        with self._writer_lock:
            if self._is_locked:
                yield
                return
            self._lock.acquire()
            with self._held():
                yield

    @contextmanager
    def _held(self) -> Iterator[None]:
        self._is_locked = True
        try:
            yield
        finally:
            self._is_locked = False
            self._lock.release()

    def _turn(self) -> AbstractContextManager[None]:
        return nullcontext() if self._turns is None else self._turns.turn()

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._connect(_Connection)
        return self._writer

    def _reader(self) -> _ReadingConnection:
        try:
            return self._idle_readers.pop()
        except IndexError:
            pass
        source = find_read_only_source(self.path, self.read_only)
        if source is not None:
            return self._connect_read_only(*source)
        try:
            return self._connect(_ReadingConnection)
        except sqlite3.OperationalError as error:
            if not self.path.exists() or not cannot_create_wal(error):
                raise
            source = find_read_only_source(self.path, is_required=True)
            assert source is not None
            return self._connect_read_only(*source)

    def _keep_reader(self, connection: _ReadingConnection) -> None:
        self._idle_readers.append(connection)
        if len(self._idle_readers) > IDLE_READERS_MAX:
            with suppress(IndexError):  # other readers took them
                self._idle_readers.pop().close()

    def _connect_read_only(self, uri: str, frozen: FrozenFile | None) -> _ReadingConnection:
        connection = sqlite3.connect(
            uri, isolation_level=None, check_same_thread=False, factory=_ReadingConnection, uri=True
        )
        connection.frozen = frozen
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    def _connect(self, factory: type[C]) -> C:
        create_file(self.path)
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
            factory=factory,
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        limit_wal(connection)
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection


def create_file(path: Path) -> None:
    """Creates an empty database with the mode of the process's other files.

    SQLite ignores the umask and denies group writes, and gives its -wal and -shm files the same
    mode. UnavailableError if the file cannot be created.
    """
    try:
        # Only a new file: closing an existing one would release SQLite's locks on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        pass
    except OSError as error:
        raise UnavailableError(f"cannot create {path}: {error.strerror}") from error
