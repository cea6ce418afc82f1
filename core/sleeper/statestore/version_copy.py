"""The state of one version as the state of a table of its own (clones and backups).

The copy removes what was added after the version, takes back what was removed after it, and forgets
jobs, holds, followers, pins, and files and key files that the version does not need. The version
becomes the state's number and horizon, so that a log which begins there continues it.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from sleeper.statestore.database import Database
from sleeper.statestore.deletes import forget_deletes
from sleeper.statestore.fold import Fold
from sleeper.statestore.fold_tables import LOG_TABLE_PREFIX
from sleeper.statestore.reading.table_state import TableState


def copy_state(database: Database, target: Path) -> int:
    """Writes the state without its log to a new file. Returns its number."""
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        _copy_tables(database, copy)
        copy.execute("VACUUM")
        return int(copy.execute("SELECT number FROM position").fetchone()[0])


def copy_version(database: Database, target: Path, version: int, keeps_ids: bool) -> None:
    """Writes the state of a version to a new file, without its log.

    `keeps_ids` keeps the ids of transactions up to the version, so that a repeated job is already
    done, and export queues, which begin at the version. InvalidRequestError if the version is not
    readable.
    """
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        _copy_tables(database, copy)
        TableState(copy, version)  # checks the version
        copy.execute("BEGIN")
        _rewind(copy, version, keeps_ids)
        copy.execute("COMMIT")
        copy.execute("VACUUM")


def _copy_tables(database: Database, copy: sqlite3.Connection) -> None:
    with database.reading() as connection:
        connection.backup(copy)
    copy.execute("PRAGMA journal_mode = DELETE")
    copy.execute("PRAGMA synchronous = OFF")
    names = copy.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, ?) = ?",
        (len(LOG_TABLE_PREFIX), LOG_TABLE_PREFIX),
    ).fetchall()
    for (name,) in names:
        copy.execute(f"DROP TABLE {name}")


def _rewind(copy: sqlite3.Connection, version: int, keeps_ids: bool) -> None:
    for statement in _REMOVALS:
        copy.execute(statement, {"n": version})
    for statement in _CHANGES_WITH_IDS if keeps_ids else _FORGOTTEN_OTHERWISE:
        copy.execute(statement, {"n": version})
    fold = Fold(copy)
    forget_deletes(fold, -1, [])
    copy.execute("DELETE FROM key_files WHERE collecting IS NOT NULL")


_CHANGES_WITH_IDS = (
    "DELETE FROM export_queues WHERE generation > :n",
    "DELETE FROM followers WHERE name NOT IN (SELECT 'export-queue:' || name FROM export_queues)",
    "UPDATE followers SET start = :n",
)
_FORGOTTEN_OTHERWISE = (
    "DELETE FROM applied",
    "DELETE FROM followers",
    "DELETE FROM export_queues",
)
_REMOVALS = (
    "DELETE FROM schema_versions WHERE version > :n",
    "DELETE FROM processing_versions WHERE version > :n",
    "DELETE FROM applied WHERE number > :n",
    "DELETE FROM history WHERE number > :n",
    "DELETE FROM jobs",
    "DELETE FROM holds",
    # Clones of the source have nothing to do with the new table.
    "DELETE FROM pins",
    "DELETE FROM partitions WHERE added > :n",
    "UPDATE partitions SET split = NULL WHERE split > :n",
    "DELETE FROM unsplittable WHERE judged_at > :n"
    " OR partition NOT IN (SELECT key FROM partitions)",
    "DELETE FROM refs WHERE added > :n OR removed <= :n",
    "UPDATE refs SET removed = NULL, job = NULL WHERE removed IS NOT NULL OR job IS NOT NULL",
    "DELETE FROM files WHERE key NOT IN (SELECT file FROM refs)",
    "UPDATE files SET unreferenced = NULL, unreferenced_time = NULL, collecting = NULL,"
    " references_left = (SELECT count(*) FROM refs r WHERE r.file = files.key)",
    "DELETE FROM deletes WHERE since > :n OR removed <= :n",
    "UPDATE deletes SET removed = NULL",
    # A snapshot version that began before begins with the state.
    "DELETE FROM snapshot_versions WHERE number IS NOT"
    " (SELECT max(number) FROM snapshot_versions WHERE number <= :n)",
    "UPDATE snapshot_versions SET number = :n, ended = NULL, ended_time = NULL WHERE expired IS"
    " NULL OR ended > :n",
    # Entry times keep the time of the version. The log's time never decreases.
    "INSERT OR REPLACE INTO entry_times SELECT :n, coalesce("
    "(SELECT time FROM entry_times WHERE last >= :n ORDER BY last LIMIT 1), time) FROM position",
    "DELETE FROM entry_times WHERE last <> :n",
    # The write id of the version's entry is not known.
    "UPDATE position SET number = :n, horizon = :n, forgotten_below = :n, write_id = NULL",
)
