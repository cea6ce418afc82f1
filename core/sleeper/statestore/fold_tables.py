"""The SQLite tables of the fold, and their upgrades from older formats.

Rows refer to each other by small integer keys. A partition's range and a file's key bounds are one
column per row key field, without a declared type, so that SQLite compares integers by value, text
by its UTF-8 bytes and blobs as unsigned bytes: the order of keys. Numbers state when a row was
added and removed; null means not removed. A version of schema or processing is the number that set
it. A pin names a data file or key file by the hash of its path. There is an index only where a
query needs one.

`snapshot_versions` has the versions of a snapshot table; its `table_type` is `snapshot`. `begun` is
the number at which the load began, `ended` the number of the next version or of the newest one's
expiry. A version expires after its end, or with it if it is the newest.

`horizon` is the oldest version that anyone may begin to read; versions below `forgotten_below` are
no longer complete in the state. Holds on the versions between keep their files. `holds` has those
that older versions of Sleeper wrote into the log.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

from sleeper.errors import DataError

FOLD_FORMAT_VERSION = 6

NOT_PINNED = "NOT EXISTS (SELECT 1 FROM pins WHERE pins.file = path_hash)"
"""SQL: no clone needs the data file or key file."""

LOG_TABLE_PREFIX = "log_"
"""Tables of this prefix belong to a log that lives in the same file; a snapshot drops them."""

_TABLES = """
CREATE TABLE IF NOT EXISTS position (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  number INTEGER NOT NULL, time INTEGER NOT NULL, horizon INTEGER NOT NULL,
  dimensions INTEGER NOT NULL, orphan_age INTEGER NOT NULL,
  run_bar INTEGER NOT NULL DEFAULT 0, write_id TEXT, table_type TEXT,
  forgotten_below INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS schema_versions (version INTEGER PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS processing_versions (version INTEGER PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS applied (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, fingerprint BLOB NOT NULL,
  number INTEGER NOT NULL, time INTEGER NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS applied_by_id ON applied (id, kind);
CREATE TABLE IF NOT EXISTS refs (
  partition INTEGER NOT NULL, file INTEGER NOT NULL, rows INTEGER NOT NULL,
  added INTEGER NOT NULL, removed INTEGER, job INTEGER,
  PRIMARY KEY (partition, file, added)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS refs_by_file ON refs (file);
CREATE TABLE IF NOT EXISTS jobs (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, partition INTEGER NOT NULL,
  lease_expiry INTEGER NOT NULL, assigned INTEGER NOT NULL, assigned_time INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS unsplittable (
  partition INTEGER PRIMARY KEY, judged_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS holds (
  id TEXT PRIMARY KEY, owner TEXT NOT NULL, version INTEGER NOT NULL, expiry INTEGER NOT NULL
  ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS followers (
  name TEXT PRIMARY KEY, cursor_key TEXT NOT NULL, start INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entry_times (last INTEGER PRIMARY KEY, time INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS history (
  number INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, job TEXT,
  files INTEGER, rows INTEGER, bytes INTEGER);
CREATE TABLE IF NOT EXISTS key_files (
  key INTEGER PRIMARY KEY, path TEXT NOT NULL, path_hash INTEGER NOT NULL, keys INTEGER NOT NULL,
  bytes INTEGER NOT NULL, sidecars TEXT NOT NULL, collecting INTEGER);
CREATE INDEX IF NOT EXISTS key_files_by_path ON key_files (path_hash);
CREATE TABLE IF NOT EXISTS pins (
  file INTEGER NOT NULL, clone TEXT NOT NULL, PRIMARY KEY (file, clone)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshot_versions (
  number INTEGER PRIMARY KEY, begun INTEGER NOT NULL, time INTEGER NOT NULL, job TEXT,
  files INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
  ended INTEGER, ended_time INTEGER, expired INTEGER, expired_time INTEGER);
CREATE TABLE IF NOT EXISTS export_queues (
  name TEXT PRIMARY KEY, generation INTEGER NOT NULL, source TEXT NOT NULL,
  definition TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO position (one, number, time, horizon, dimensions, orphan_age)
  VALUES (1, 0, 0, 0, 0, 0);
"""

_POSITION_COLUMNS_SINCE_3 = {
    "run_bar": "INTEGER NOT NULL DEFAULT 0",
    "write_id": "TEXT",
    "table_type": "TEXT",
    "forgotten_below": "INTEGER NOT NULL DEFAULT 0",
}

_PARTITIONS = """
CREATE TABLE partitions (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parent INTEGER,
  added INTEGER NOT NULL, split INTEGER, {ranges});
CREATE INDEX partitions_by_parent ON partitions (parent);
"""

_FILES = """
CREATE TABLE files (
  key INTEGER PRIMARY KEY, path TEXT NOT NULL, path_hash INTEGER NOT NULL,
  rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
  schema_version INTEGER NOT NULL, sidecars TEXT NOT NULL, smallest_number INTEGER NOT NULL,
  largest_number INTEGER NOT NULL, added INTEGER NOT NULL, references_left INTEGER NOT NULL,
  unreferenced INTEGER, unreferenced_time INTEGER, collecting INTEGER,
  applied INTEGER NOT NULL, {bounds});
CREATE INDEX files_by_path ON files (path_hash);
CREATE INDEX files_of_ingests ON files (added) WHERE smallest_number = added;
CREATE INDEX files_unreferenced ON files (unreferenced_time) WHERE unreferenced IS NOT NULL;
CREATE TABLE deletes (
  key INTEGER PRIMARY KEY, number INTEGER NOT NULL, since INTEGER NOT NULL, removed INTEGER,
  key_file INTEGER, {ranges});
CREATE INDEX deletes_by_number ON deletes (number);
"""


def path_hash(path: str) -> int:
    """Returns the lookup key of a file. Its index has a fifth of the size of one on paths."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), signed=True)


def has_tables(connection: sqlite3.Connection) -> bool:
    """Returns whether the file is a fold of this version, without need for `create_tables`."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(version == FOLD_FORMAT_VERSION)


def older_format(connection: sqlite3.Connection) -> int | None:
    """Returns the format of a fold that `create_tables` would upgrade, None if there is none."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version if 0 < version < FOLD_FORMAT_VERSION else None


def create_tables(connection: sqlite3.Connection) -> None:
    """Creates an empty fold, or upgrades an older one.

    DataError if a newer version wrote the file.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FOLD_FORMAT_VERSION:
        raise DataError(
            f"the state has format {version}, this version reads up to {FOLD_FORMAT_VERSION}"
        )
    if version < FOLD_FORMAT_VERSION:
        columns = _columns(connection, "position")
        for name, definition in _POSITION_COLUMNS_SINCE_3.items():
            if columns and name not in columns:
                connection.execute(f"ALTER TABLE position ADD COLUMN {name} {definition}")
        if columns and "forgotten_below" not in columns:
            connection.execute("UPDATE position SET forgotten_below = horizon")
        is_older = version > 0 and not _has_key(connection, "refs", "added")
        with _rebuilt(connection, "refs", ["refs_by_file"]) if is_older else nullcontext():
            _run_script(connection, _TABLES)
        (dimensions,) = connection.execute("SELECT dimensions FROM position").fetchone()
        if dimensions and "applied" not in _columns(connection, "files"):
            _upgrade_files(connection, dimensions)
        connection.execute(f"PRAGMA user_version = {FOLD_FORMAT_VERSION}")


def _upgrade_files(connection: sqlite3.Connection, dimensions: int) -> None:
    # No table of an older format has deletes, so any number is one up to which they are applied.
    indexes = ["files_by_path", "files_of_ingests", "files_unreferenced"]
    with _rebuilt(connection, "files", indexes, applied="largest_number"):
        _run_script(connection, _FILES.format(**_key_columns(dimensions)))


@contextmanager
def _rebuilt(
    connection: sqlite3.Connection, table: str, indexes: list[str], **added: str
) -> Iterator[None]:
    """Replaces a table by one that the block creates, with its rows and the `added` columns."""
    columns = _columns(connection, table)
    for index in indexes:
        connection.execute(f"DROP INDEX IF EXISTS {index}")
    connection.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
    yield
    names, values = ", ".join([*columns, *added]), ", ".join([*columns, *added.values()])
    connection.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM {table}_before")
    connection.execute(f"DROP TABLE {table}_before")


def _has_key(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """Returns whether the column is part of the table's primary key."""
    return any(
        row[1] == column and row[5] > 0 for row in connection.execute(f"PRAGMA table_info({table})")
    )


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def create_keyed_tables(connection: sqlite3.Connection, dimensions: int) -> None:
    """Creates the tables whose columns depend on the number of row key fields."""
    columns = _key_columns(dimensions)
    _run_script(connection, _PARTITIONS.format(**columns))
    _run_script(connection, _FILES.format(**columns))


def _key_columns(dimensions: int) -> dict[str, str]:
    return {
        "ranges": ", ".join(f"min_{i}, max_{i}" for i in range(dimensions)),
        "bounds": ", ".join(f"smallest_{i}, largest_{i}" for i in range(dimensions)),
    }


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    # executescript would commit the transaction that this is part of
    for statement in script.split(";"):
        if statement.strip():
            connection.execute(statement)


@cache
def range_columns(dimensions: int) -> str:
    return ", ".join(f"p.min_{i}, p.max_{i}" for i in range(dimensions))


@cache
def bound_columns(dimensions: int) -> str:
    return ", ".join(f"f.smallest_{i}, f.largest_{i}" for i in range(dimensions))
