"""The transaction log and the state store of a local table."""

import shutil
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from obstore.store import ObjectStore

from sleeper.clock import Clock, system_clock
from sleeper.errors import ConflictError, NotFoundError, UnavailableError
from sleeper.local.holds import HoldFiles
from sleeper.local.state_formats import check_format
from sleeper.statestore.commit_queue import CommitQueue
from sleeper.statestore.database import Database
from sleeper.statestore.database_errors import translated_errors
from sleeper.statestore.fold_tables import older_format
from sleeper.statestore.holds import HoldStore
from sleeper.statestore.log import LogEntry
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.statestore.store import StateStore
from sleeper.statestore.wal import replace_database
from sleeper.storage.disk import write_error
from sleeper.tables import TableId

_TABLES = (
    "CREATE TABLE IF NOT EXISTS log_entries (first INTEGER PRIMARY KEY, last INTEGER NOT NULL,"
    " time INTEGER NOT NULL, write_id TEXT NOT NULL, format INTEGER NOT NULL, body TEXT NOT NULL,"
    " previous TEXT)",
    "CREATE TABLE IF NOT EXISTS log_head (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " head INTEGER NOT NULL, trimmed INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS log_cursors (follower TEXT PRIMARY KEY, position INTEGER NOT NULL)"
    " WITHOUT ROWID",
    "INSERT OR IGNORE INTO log_head VALUES (1, 0, 0)",
)


class SqliteTransactionLog:
    """Implements `sleeper.statestore.log.TransactionLog` in a database.

    In the state's own database an append joins the open write transaction, so that one
    synchronisation of the disk commits log and state. In a separate database state stores follow
    the log with their own copies, as on AWS.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        # A read-only folder can be opened too, so nothing is written without need.
        with database.reading() as connection:
            is_current = "previous" in _columns(connection)
        if not is_current:
            with database.writing() as connection:
                for statement in _TABLES:
                    connection.execute(statement)
                if "previous" not in _columns(connection):
                    connection.execute("ALTER TABLE log_entries ADD COLUMN previous TEXT")

    def head(self) -> int:
        ((head,),) = self._database.read_rows("SELECT head FROM log_head")
        return int(head)

    def begin(self, after: int) -> None:
        with self._database.writing() as connection:
            if _head(connection) not in {(0, 0), (after, after)}:
                raise ConflictError(
                    f"the log is at {_head(connection)[0]} (expected an empty log, to begin after "
                    f"{after})"
                )
            connection.execute("UPDATE log_head SET head = ?, trimmed = ?", (after, after))

    def read(self, after: int, limit: int = 100) -> Sequence[LogEntry]:
        with self._database.reading_or_writing() as connection:
            head, trimmed = _head(connection)
            if after > head:
                raise NotFoundError(f"transaction {after} is beyond the log, which ends at {head}")
            if after == head:
                return []
            if after < trimmed:
                raise NotFoundError(f"the log after {after} is trimmed: it begins after {trimmed}")
            rows = connection.execute(
                "SELECT first, last, time, write_id, body, format, previous FROM log_entries"
                " WHERE first > ? ORDER BY first LIMIT ?",
                (after, limit),
            )
            return [LogEntry(*row) for row in rows]

    def start_append(self, entry: LogEntry) -> Callable[[], None]:
        self.append(entry)
        return lambda: None

    def append(self, entry: LogEntry) -> None:
        with self._database.writing() as connection:
            moved = connection.execute(
                "UPDATE log_head SET head = ? WHERE head = ?",
                (entry.last_number, entry.first_number - 1),
            )
            if moved.rowcount != 1:
                raise ConflictError(
                    f"transaction {entry.first_number} is taken: the log is at "
                    f"{_head(connection)[0]}"
                )
            before = connection.execute(
                "SELECT write_id FROM log_entries ORDER BY first DESC LIMIT 1"
            ).fetchone()
            if before is not None and entry.previous_write_id not in (None, before[0]):
                raise ConflictError(f"transaction {entry.first_number - 1} is of another write")
            connection.execute(
                "INSERT INTO log_entries VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    entry.first_number,
                    entry.last_number,
                    entry.time_ms,
                    entry.write_id,
                    entry.format_version,
                    entry.body,
                    entry.previous_write_id,
                ),
            )

    def trim(self, up_to: int) -> None:
        with self._database.writing() as connection:
            last = connection.execute(
                "SELECT max(last) FROM log_entries WHERE last <= ?", (up_to,)
            ).fetchone()[0]
            if last is not None:
                connection.execute("DELETE FROM log_entries WHERE last <= ?", (last,))
                connection.execute("UPDATE log_head SET trimmed = ?", (last,))

    def cursor(self, follower: str) -> int:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT position FROM log_cursors WHERE follower = ?", (follower,)
            ).fetchone()
            return row[0] if row else 0

    def advance(self, follower: str, to: int) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO log_cursors VALUES (?, ?) ON CONFLICT (follower)"
                " DO UPDATE SET position = max(position, excluded.position)",
                (follower, to),
            )

    def used_bodies(self, paths: Sequence[str]) -> set[str]:  # noqa: ARG002 (bodies are in rows)
        return set()


def _columns(connection: sqlite3.Connection) -> set[str]:
    """Returns the columns of the entries, none if the table does not exist."""
    return {row[1] for row in connection.execute("PRAGMA table_info(log_entries)")}


def _head(connection: sqlite3.Connection) -> tuple[int, int]:
    head, trimmed = connection.execute("SELECT head, trimmed FROM log_head").fetchone()
    return head, trimmed


def open_state_store(
    path: Path,
    clock: Clock = system_clock,
    objects: ObjectStore | None = None,
    table_id: str = "",
    read_only: bool = False,
    holds: HoldStore | None = None,
) -> StateStore:
    """Opens log and state in one SQLite file, which is created if it does not exist.

    `holds` are by default in a file beside it.

    Snapshots go below `<table id>/snapshots/` of `objects`, if that is given. A `read_only` store
    refuses commits and creates nothing. InvalidRequestError if the state has an older format, which
    `check_state_formats` converts.
    """
    if not read_only:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"{path.parent}: {error}") from error
    database = Database(path, read_only=read_only)
    if not read_only:
        _check_format(database)
    snapshots = SnapshotStore(objects, table_id) if objects is not None else None
    queue = CommitQueue(database.lock_path)
    log = SqliteTransactionLog(database)
    holds = holds or HoldFiles(path.parent, read_only).of_table(TableId(table_id))
    return StateStore(database, log, holds, clock, snapshots, queue, table_id)


def _check_format(database: Database) -> None:
    try:
        with database.reading() as connection:
            check_format(database.path, older_format(connection))
    except BaseException:
        database.close()
        raise


def install_state(path: Path, state: Path) -> None:
    """Creates the file of log and state from that of a state, atomically and durably.

    The log begins after the state's number. It replaces an earlier file.
    """
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.installing")
    try:
        with translated_errors(unfinished):
            shutil.copyfile(state, unfinished)
            database = Database(unfinished)
            try:
                with database.reading() as connection:
                    (number,) = connection.execute("SELECT number FROM position").fetchone()
                SqliteTransactionLog(database).begin(number)
                # A close hides that the disk refused to move the -wal file into the database.
                if not database.truncate_wal():
                    raise UnavailableError(f"{unfinished} is being read by another process")
            finally:
                database.close()
        replace_database(path, unfinished)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        for left in path.parent.glob(f"{unfinished.name}*"):
            left.unlink(missing_ok=True)
