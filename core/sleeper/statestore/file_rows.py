"""Data files and file references as rows of the fold."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Region
from sleeper.schema.model import Key, precedes
from sleeper.statestore.fold import Fold
from sleeper.statestore.tables import bound_columns, path_hash

_FIND = (
    "SELECT key, references_left, unreferenced, unreferenced_time, collecting,"
    " smallest_number, largest_number FROM files WHERE path_hash = ? AND path = ?"
)


@dataclass(frozen=True, slots=True)
class FileRow:
    """What transactions ask of a file. `unreferenced` is when it lost its last reference."""

    key: int
    references_left: int
    unreferenced: int | None
    unreferenced_time_ms: int | None
    collecting: int | None
    smallest_number: int
    largest_number: int


def find_file(fold: Fold, path: str) -> FileRow | None:
    """The file of that path, if the state knows it."""
    found = fold.row(_FIND, (path_hash(path), path))
    return found and FileRow(*found)


def insert_file(
    fold: Fold, file: DataFile, numbers: tuple[int, int], references: list[tuple[int, int]]
) -> None:
    """Adds a file whose content has these numbers, with its references (partition key, rows)."""
    bounds: list[Any] = []
    for smallest, largest in zip(file.smallest_key, file.largest_key, strict=True):
        bounds += (smallest, largest)
    number = fold.next_number
    inserted = fold.run(
        _insert_sql(fold.dimensions),
        (
            file.path,
            path_hash(file.path),
            file.rows,
            file.bytes,
            file.schema_version,
            sidecars_to_column(file.sidecars),
            *numbers,
            number,
            len(references),
            *bounds,
        ),
    )
    assert inserted.lastrowid is not None
    for partition, rows in references:
        insert_reference(fold, partition, inserted.lastrowid, rows)


def insert_reference(fold: Fold, partition: int, file: int, rows: int) -> None:
    """Adds a reference; the caller keeps the file's `references_left`."""
    fold.run(
        "INSERT INTO refs (partition, file, rows, added) VALUES (?, ?, ?, ?)",
        (partition, file, rows, fold.next_number),
    )


def remove_reference(fold: Fold, partition: int, file: int) -> None:
    """Ends a current reference; notes the moment when it was the file's last."""
    number = fold.next_number
    fold.run(
        "UPDATE refs SET removed = ?, job = NULL WHERE partition = ? AND file = ?",
        (number, partition, file),
    )
    fold.run(
        "UPDATE files SET references_left = references_left - 1,"
        " unreferenced = CASE references_left WHEN 1 THEN ? END,"
        " unreferenced_time = CASE references_left WHEN 1 THEN ? END WHERE key = ?",
        (number, fold.time_ms, file),
    )


def find_file_fault(file: DataFile, region: Region) -> str | None:
    """Why this cannot describe a file of a table with such regions; None if it can."""
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


def sidecars_to_column(sidecars: tuple[str, ...]) -> str:
    return json.dumps(sidecars) if sidecars else ""


@cache
def sidecars_from_column(column: str) -> tuple[str, ...]:
    return tuple(json.loads(column)) if column else ()


def data_file_from_columns(row: Any) -> DataFile:
    """From the columns of `data_file_columns`."""
    path, rows, size, schema_version, sidecars, smallest_number, largest_number, *bounds = row
    smallest: Key = tuple(bounds[0::2])
    largest: Key = tuple(bounds[1::2])
    return DataFile(
        path,
        rows,
        size,
        smallest,
        largest,
        schema_version,
        sidecars_from_column(sidecars),
        smallest_number,
        largest_number,
    )


@cache
def data_file_columns(dimensions: int) -> str:
    return (
        "f.path, f.rows, f.bytes, f.schema_version, f.sidecars, f.smallest_number,"
        f" f.largest_number, {bound_columns(dimensions)}"
    )


@cache
def _insert_sql(dimensions: int) -> str:
    columns = ", ".join(f"smallest_{i}, largest_{i}" for i in range(dimensions))
    marks = ", ".join("?" * (10 + 2 * dimensions))
    return (
        "INSERT INTO files (path, path_hash, rows, bytes, schema_version, sidecars,"
        f" smallest_number, largest_number, added, references_left, {columns}) VALUES ({marks})"
    )
