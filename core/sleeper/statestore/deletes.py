"""Deletes of rows in the fold: their rows, and when they are forgotten."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sleeper.files import KeyFile
from sleeper.partitions.region import Region
from sleeper.statestore.fold import Fold
from sleeper.statestore.fold_tables import NOT_PINNED, path_hash
from sleeper.statestore.rows import insert_row


def region_kinds(fold: Fold) -> list[type]:
    """Returns the Python types of the row key fields, by the root partition's region."""
    return [type(value) for value in fold.row(_root_mins_sql(fold.dimensions))]


@cache
def _root_mins_sql(dimensions: int) -> str:
    columns = ", ".join(f"min_{i}" for i in range(dimensions))
    return f"SELECT {columns} FROM partitions WHERE parent IS NULL"


def insert_deletes(fold: Fold, regions: Sequence[Region], key_file: int | None = None) -> None:
    """Adds deletes of the rows in the regions, active from the transaction being applied on.

    With the key of a key file, only rows with one of its keys are deleted.
    """
    number = fold.next_number
    fold.run_many(
        _insert_delete_sql(fold.dimensions),
        [
            (number, number, key_file, *(v for each in region.ranges for v in (each.min, each.max)))
            for region in regions
        ],
    )


@cache
def _insert_delete_sql(dimensions: int) -> str:
    columns = ", ".join(f"min_{i}, max_{i}" for i in range(dimensions))
    markers = ", ".join("?" * (3 + 2 * dimensions))
    return f"INSERT INTO deletes (number, since, key_file, {columns}) VALUES ({markers})"


def insert_key_file(fold: Fold, file: KeyFile) -> int:
    """Adds a key file. Returns its key."""
    row = {
        "path": file.path,
        "path_hash": path_hash(file.path),
        "keys": file.keys,
        "bytes": file.bytes,
        "sidecars": json.dumps(file.sidecars) if file.sidecars else "",
    }
    return insert_row(fold, "key_files", row)


@dataclass(frozen=True, slots=True)
class KeyFileRow:
    """A key file with its key; `collecting` is the number that forgot its last delete."""

    key: int
    collecting: int | None


def find_key_file(fold: Fold, path: str) -> KeyFileRow | None:
    """Returns the key file of that path, or None."""
    sql = "SELECT key, collecting FROM key_files WHERE path_hash = ? AND path = ?"
    row = fold.row(sql, (path_hash(path), path))
    return row and KeyFileRow(*row)


def forget_deletes(fold: Fold, after: int, collected: list[int]) -> None:
    """Removes deletes that no readable version needs: those that apply to no file with references.

    A delete may become one when what is forgotten passes its number or its end, so those with one
    above `after` are examined, and when a file goes, so those that overlap the `collected` files
    (keys) are. Key files of which no delete is left are collected.
    """
    horizon = fold.forgotten_below
    within = {"after": after, "horizon": horizon}
    examined = {key for (key,) in fold.rows(_DELETES_SINCE, within)}
    overlapping = _deletes_of_file_sql(fold.dimensions)
    for file in collected:
        rows = fold.rows(overlapping, {"file": file, "horizon": horizon})
        examined |= {key for (key,) in rows}
    for key in sorted(examined):
        fold.run(_forget_delete_sql(fold.dimensions), {"key": key, "horizon": horizon})
    collect_key_files(fold)


def collect_key_files(fold: Fold) -> None:
    """Marks key files that neither a delete nor a clone needs, so that they are collected."""
    fold.run(_COLLECT_KEY_FILES, (fold.next_number,))


_COLLECT_KEY_FILES = (
    "UPDATE key_files SET collecting = ? WHERE collecting IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM deletes d WHERE d.key_file = key_files.key)"
    f" AND {NOT_PINNED}"
)
_DELETES_SINCE = (
    "SELECT key FROM deletes WHERE number > :after AND number <= :horizon"
    " OR removed > :after AND removed <= :horizon"
)


@cache
def _deletes_of_file_sql(dimensions: int) -> str:
    return (
        "SELECT d.key FROM files f CROSS JOIN deletes d WHERE f.key = :file"
        f" AND d.number > f.applied AND d.number <= :horizon AND {file_overlap_sql(dimensions)}"
    )


@cache
def file_overlap_sql(dimensions: int) -> str:
    """Returns SQL: delete `d` overlaps the key bounds of file `f`."""
    return " AND ".join(
        f"d.min_{i} <= f.largest_{i} AND (d.max_{i} IS NULL OR d.max_{i} > f.smallest_{i})"
        for i in range(dimensions)
    )


def partition_overlap_sql(dimensions: int) -> str:
    """Returns SQL: delete `d` overlaps partition `p`."""
    return " AND ".join(
        f"(d.max_{i} IS NULL OR p.min_{i} < d.max_{i})"
        f" AND (p.max_{i} IS NULL OR p.max_{i} > d.min_{i})"
        for i in range(dimensions)
    )


@cache
def _forget_delete_sql(dimensions: int) -> str:
    inside = partition_overlap_sql(dimensions)
    return (
        "DELETE FROM deletes WHERE key = :key AND (removed <= :horizon OR NOT EXISTS ("
        "WITH RECURSIVE d AS (SELECT * FROM deletes WHERE key = :key), walk (key) AS ("
        f" SELECT p.key FROM partitions p, d WHERE p.parent IS NULL AND {inside}"
        " UNION ALL SELECT p.key FROM walk CROSS JOIN partitions p ON p.parent = walk.key, d"
        f" WHERE {inside})"
        " SELECT 1 FROM walk CROSS JOIN refs r ON r.partition = walk.key"
        " CROSS JOIN files f ON f.key = r.file, d"
        f" WHERE f.applied < d.number AND {file_overlap_sql(dimensions)}))"
    )
