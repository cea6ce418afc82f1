"""The versions of a snapshot table in the fold."""

from sleeper.clock import iso_time
from sleeper.statestore.fold import Fold

IN_EXPIRED = (
    "(EXISTS (SELECT 1 FROM snapshot_versions) AND NOT EXISTS ("
    "SELECT 1 FROM refs r JOIN snapshot_versions s ON s.expired IS NULL"
    " AND (s.ended IS NULL OR r.added < s.ended) AND (r.removed IS NULL OR r.removed > s.number)"
    " WHERE r.file = files.key))"
)
"""SQL: every version of the snapshot table that needs the row of `files` has expired."""

_COVERING = (
    "SELECT number, ended, expired, expired_time FROM snapshot_versions WHERE number <= ?"
    " ORDER BY number DESC LIMIT 1"
)


def is_in_expired(fold: Fold, file: int) -> bool:
    """Returns whether only expired versions of a snapshot table need the file (its key)."""
    return bool(fold.row(f"SELECT {IN_EXPIRED} FROM files WHERE key = ?", (file,))[0])


def find_expired_fault(fold: Fold, version: int) -> str | None:
    """Returns why the version of a snapshot table is no longer readable; None if it is."""
    if not fold.is_snapshot_table:
        return None
    return expired_fault(version, fold.row(_COVERING, (version,)))


def find_snapshot_fault(fold: Fold, version: int) -> str | None:
    """Returns why a snapshot table has no rows at the version; None if it has."""
    if not fold.is_snapshot_table:
        return None
    return missing_fault(fold.row(_COVERING, (version,)))


def expired_fault(version: int, covering: tuple[int, int, int, int] | None) -> str | None:
    """Returns the error of a number within an expired version; None if no such version has it."""
    if covering is None or covering[2] is None or version >= covering[1]:
        return None
    number, _, _, time_ms = covering
    return (
        f"version {version} is no longer readable: snapshot version {number} expired at "
        f"{iso_time(time_ms)}"
    )


def missing_fault(covering: tuple[int, int, int, int] | None) -> str | None:
    """Returns the error of a number at which the table has no rows to read; None if it has."""
    if covering is None:
        return "there is no snapshot yet (expected a load, such as `sleeper ingest`)"
    number, _, expired, time_ms = covering
    if expired is None:
        return None
    return (
        f"there is no version to read: the newest, version {number}, expired at "
        f"{iso_time(time_ms)} (expected a load)"
    )


def publish_version(
    fold: Fold, begun: int, job: str | None, files: int, rows: int, size: int
) -> None:
    """Makes the transaction being applied the newest version, and ends the one before."""
    end_newest(fold)
    fold.run(
        "INSERT INTO snapshot_versions (number, begun, time, job, files, rows, bytes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (fold.next_number, begun, fold.time_ms, job, files, rows, size),
    )


def publish_content(fold: Fold, job: str) -> None:
    """Publishes the references that a transaction made, if the table is a snapshot table."""
    if not fold.is_snapshot_table:
        return
    files, rows, size = fold.row(
        "SELECT count(*), coalesce(sum(held.rows), 0), coalesce(sum(f.bytes), 0) FROM ("
        "SELECT file, sum(rows) AS rows FROM refs WHERE removed IS NULL GROUP BY file) held"
        " JOIN files f ON f.key = held.file"
    )
    publish_version(fold, fold.next_number, job, files, rows, size)


def end_newest(fold: Fold) -> None:
    """Ends the newest version at the transaction being applied, if it has no end."""
    fold.run(
        "UPDATE snapshot_versions SET ended = ?, ended_time = ? WHERE ended IS NULL",
        (fold.next_number, fold.time_ms),
    )


def remove_references(fold: Fold) -> None:
    """Removes all references, and frees the files of compaction jobs."""
    fold.run("DELETE FROM jobs")
    fold.run("UPDATE refs SET removed = ?, job = NULL WHERE removed IS NULL", (fold.next_number,))
    fold.run(
        "UPDATE files SET references_left = 0, unreferenced = ?, unreferenced_time = ?"
        " WHERE unreferenced IS NULL",
        (fold.next_number, fold.time_ms),
    )
    fold.run("DELETE FROM unsplittable")


def forget_versions(fold: Fold) -> None:
    """Removes expired versions of which no number is at or above the horizon."""
    fold.run(
        "DELETE FROM snapshot_versions WHERE expired IS NOT NULL"
        " AND number < (SELECT max(number) FROM snapshot_versions WHERE number <= ?)",
        (fold.forgotten_below,),
    )
