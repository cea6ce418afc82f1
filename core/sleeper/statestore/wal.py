"""A SQLite file in WAL mode and the -wal file beside it: their space, their replacement."""

import sqlite3
from pathlib import Path

from sleeper.storage.disk import delete_durably, replace_file, sync_file, write_error

BUSY_TIMEOUT_SECONDS = 60.0
_TRUNCATION_MS_MAX = 200
_WAL_BYTES_MAX = 4 * 1024**2


def limit_wal(connection: sqlite3.Connection) -> None:
    """Truncates the -wal file when it is empty, after a long read let it grow."""
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")


def truncate_wal(connection: sqlite3.Connection) -> bool:
    """Moves the -wal file into the database, and truncates it. False if a reader keeps it."""
    # Writers wait meanwhile.
    connection.execute(f"PRAGMA busy_timeout = {_TRUNCATION_MS_MAX}")
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        _sync_wal(connection)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_SECONDS * 1000:.0f}")
    return not busy


def vacuum(connection: sqlite3.Connection) -> bool:
    """Rewrites a database in WAL mode, which otherwise keeps the bytes of deleted rows.

    Its -wal file keeps them always, its unused pages unless SQLite overwrites them
    (`secure_delete`, which depends on the build). Returns False if a reader keeps the -wal file.
    """
    # A copy in memory could be as large as the file.
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
        return truncate_wal(connection)
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")


def replace_database(path: Path, file: Path) -> None:
    """Gives the file of a closed database the path of another, which it replaces durably."""
    sync_file(file)
    # SQLite would replay what remains of the other's log.
    delete_durably(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    replace_file(path, file)


def _sync_wal(connection: sqlite3.Connection) -> None:
    """Makes the truncation of the -wal file durable, which SQLite does not."""
    (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
    wal = Path(f"{path}-wal")
    try:
        if wal.exists():  # SQLite has no locks on it, so it may be closed
            sync_file(wal)
    except OSError as error:
        raise write_error(wal, error) from error
