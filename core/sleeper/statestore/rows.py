"""Rows of partitions, data files and file references in the fold."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from sleeper.files import DataFile
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Key, precedes
from sleeper.statestore.fold import Fold
from sleeper.statestore.fold_tables import bound_columns, path_hash, range_columns

_PARTITION_ROWS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with its key; `split` is the number at which it stopped being a leaf."""

    key: int
    split: int | None
    region: Region

    @property
    def is_leaf(self) -> bool:
        return self.split is None


def region_from_columns(columns: Any) -> Region:
    """Returns the region of the columns min_0, max_0, min_1, ..."""
    return Region(tuple(Range(columns[i], columns[i + 1]) for i in range(0, len(columns), 2)))


def region_columns(region: Region) -> dict[str, Any]:
    """Returns the columns min_0, max_0, min_1, ... of the region."""
    columns: dict[str, Any] = {}
    for i, within in enumerate(region.ranges):
        columns |= {f"min_{i}": within.min, f"max_{i}": within.max}
    return columns


def find_partition(fold: Fold, partition_id: PartitionId) -> PartitionRow | None:
    """Returns the partition of that id, leaf or not; None if there never was one."""
    row: PartitionRow | None = fold.partition_rows.get(partition_id)
    if row is None:
        record = fold.row(_find_partition_sql(fold.dimensions), (partition_id,))
        if record is None:
            return None
        if len(fold.partition_rows) >= _PARTITION_ROWS_MAX:
            fold.partition_rows.clear()
        row = PartitionRow(record[0], record[1], region_from_columns(record[2:]))
        fold.partition_rows[partition_id] = row
    return row


def mark_split(fold: Fold, partition_key: int) -> None:
    """Makes the leaf an inner partition at the transaction being applied."""
    fold.partition_rows.clear()
    fold.run("UPDATE partitions SET split = ? WHERE key = ?", (fold.next_number, partition_key))


def insert_partition(fold: Fold, partition: Partition, parent_key: int | None) -> int:
    """Adds the partition at the transaction being applied; returns its key."""
    fold.partition_rows.clear()
    number = fold.next_number
    split = None if partition.is_leaf else number
    row: dict[str, Any] = {
        "id": partition.id,
        "parent": parent_key,
        "added": number,
        "split": split,
    }
    return insert_row(fold, "partitions", row | region_columns(partition.region))


def ancestor_keys(fold: Fold, key: int) -> list[int]:
    """Returns keys of the partition's ancestors, nearest first, without itself."""
    return [
        k
        for (k,) in fold.rows(
            "WITH RECURSIVE chain (key, parent) AS ("
            " SELECT key, parent FROM partitions WHERE key = ?"
            " UNION ALL SELECT p.key, p.parent FROM chain"
            " JOIN partitions p ON p.key = chain.parent)"
            " SELECT key FROM chain",
            (key,),
        )
    ][1:]


@cache
def _find_partition_sql(dimensions: int) -> str:
    return f"SELECT p.key, p.split, {range_columns(dimensions)} FROM partitions p WHERE p.id = ?"


def insert_row(fold: Fold, table: str, row: dict[str, Any]) -> int:
    """Adds a row by its columns. Returns its key."""
    sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    inserted = fold.run(sql, tuple(row.values()))
    assert inserted.lastrowid is not None
    return inserted.lastrowid


_FIND_FILE = (
    "SELECT key, references_left, unreferenced, unreferenced_time, collecting,"
    " smallest_number, largest_number FROM files WHERE path_hash = ? AND path = ?"
)


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file with its key; `unreferenced` is the number that removed its last reference."""

    key: int
    references_left: int
    unreferenced: int | None
    unreferenced_time_ms: int | None
    collecting: int | None
    smallest_number: int
    largest_number: int


def find_file(fold: Fold, path: str) -> FileRow | None:
    """Returns the file of that path, or None."""
    row = fold.row(_FIND_FILE, (path_hash(path), path))
    return row and FileRow(*row)


def insert_file(
    fold: Fold,
    file: DataFile,
    numbers: tuple[int, int],
    applied: int,
    references: list[tuple[int, int]],
) -> None:
    """Adds a file whose content has these numbers, with its references (partition key, rows).

    Deletes up to the number `applied` are applied in it.
    """
    smallest_number, largest_number = numbers
    row: dict[str, Any] = {
        "path": file.path,
        "path_hash": path_hash(file.path),
        "rows": file.rows,
        "bytes": file.bytes,
        "schema_version": file.schema_version,
        "sidecars": json.dumps(file.sidecars) if file.sidecars else "",
        "smallest_number": smallest_number,
        "largest_number": largest_number,
        "added": fold.next_number,
        "references_left": len(references),
        "applied": applied,
    }
    bounds = zip(file.smallest_key, file.largest_key, strict=True)
    for i, (smallest, largest) in enumerate(bounds):
        row |= {f"smallest_{i}": smallest, f"largest_{i}": largest}
    key = insert_row(fold, "files", row)
    for partition, rows in references:
        insert_reference(fold, partition, key, rows)


def insert_reference(fold: Fold, partition: int, file: int, rows: int) -> None:
    """Adds a reference. The caller updates the file's `references_left`."""
    fold.run(
        "INSERT INTO refs (partition, file, rows, added) VALUES (?, ?, ?, ?)",
        (partition, file, rows, fold.next_number),
    )


def remove_reference(fold: Fold, partition: int, file: int) -> None:
    """Removes a reference, and stores number and time if it was the file's last."""
    number = fold.next_number
    fold.run(
        "UPDATE refs SET removed = ?, job = NULL"
        " WHERE partition = ? AND file = ? AND removed IS NULL",
        (number, partition, file),
    )
    fold.run(
        "UPDATE files SET references_left = references_left - 1,"
        " unreferenced = CASE references_left WHEN 1 THEN ? END,"
        " unreferenced_time = CASE references_left WHEN 1 THEN ? END WHERE key = ?",
        (number, fold.time_ms, file),
    )


def find_file_fault(file: DataFile, region: Region) -> str | None:
    """Returns why this is no valid file of a table with such regions; None if it is valid."""
    kinds = [type(r.min) for r in region.ranges]
    if file.rows < 1 or file.bytes < 0:
        return f"file {file.path} has {file.rows} rows, {file.bytes} bytes: at least 1 and 0"
    for key in (file.smallest_key, file.largest_key):
        if [type(v) for v in key] != kinds:
            names = ", ".join(k.__name__ for k in kinds)
            return f"file {file.path} has a key bound {key!r}: expected {names}"
    for smallest, largest in zip(file.smallest_key, file.largest_key, strict=True):
        if precedes(largest, smallest):
            return f"file {file.path} has key bounds {smallest!r} to {largest!r}, upside down"
    return None


@cache
def sidecars_from_column(column: str) -> tuple[str, ...]:
    return tuple(json.loads(column)) if column else ()


def data_file_from_columns(row: Any) -> DataFile:
    """Returns the file of the columns of `data_file_columns`."""
    path, rows, size, schema, sidecars, smallest_number, largest_number, applied, *bounds = row
    smallest: Key = tuple(bounds[0::2])
    largest: Key = tuple(bounds[1::2])
    return DataFile(
        path,
        rows,
        size,
        smallest,
        largest,
        schema,
        sidecars_from_column(sidecars),
        smallest_number,
        largest_number,
        applied,
    )


@cache
def data_file_columns(dimensions: int) -> str:
    return (
        "f.path, f.rows, f.bytes, f.schema_version, f.sidecars, f.smallest_number,"
        f" f.largest_number, f.applied, {bound_columns(dimensions)}"
    )
