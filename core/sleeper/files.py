"""Data files, references, and the paths of objects that a table owns.

A *data file* is one sorted Parquet file. A *file reference* assigns the rows of a file in a
partition's region to that partition. References of one file never overlap. A file without
references is still tracked until it is collected. A *key file* holds the keys of a delete.
"""

import re
import uuid
from dataclasses import dataclass
from typing import Annotated

from sleeper.json_codec import Member
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Key, Schema, next_key_value


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A listed object. The path is relative to the data root."""

    path: str
    bytes: int
    modified_ms: int


SKETCHES_SUFFIX = ".sketches"
FILTER_SUFFIX = ".filter"
CHECKSUM_SUFFIX = ".checksum"
SIDECAR_SUFFIXES = (SKETCHES_SUFFIX, FILTER_SUFFIX, CHECKSUM_SUFFIX)
_RUN_START = re.compile(r"/(\d{13})-[0-9a-f]+\.")


@dataclass(frozen=True, slots=True)
class DataFile:
    """The metadata of a data file.

    `path` is relative to the instance's data root. `smallest_key` and `largest_key` are
    bounds per row key field, both included: every row lies in that box. The numbers are
    the smallest and largest transaction number of its content, None until committed. Deletes
    up to the number `applied` are applied in the file, later ones are not.
    `sidecars` are suffixes, such as `.sketches`, of objects beside it.
    """

    path: str
    rows: int
    bytes: int
    smallest_key: Annotated[Key, Member("smallest")]
    largest_key: Annotated[Key, Member("largest")]
    schema_version: Annotated[int, Member("schema")] = 1
    sidecars: Annotated[tuple[str, ...], Member(optional=True)] = ()
    smallest_number: Annotated[int | None, Member(stored=False)] = None
    largest_number: Annotated[int | None, Member(stored=False)] = None
    applied: Annotated[int | None, Member(stored=False)] = None

    @property
    def number(self) -> int | None:
        """The number of all rows; None if they have several, or the file is not committed."""
        return self.smallest_number if self.smallest_number == self.largest_number else None


def bounds_region(schema: Schema, file: DataFile) -> Region:
    """Returns the smallest region that contains every key within the file's bounds."""
    bounds = zip(schema.row_keys, file.smallest_key, file.largest_key, strict=True)
    return Region(tuple(Range(low, next_key_value(field, high)) for field, low, high in bounds))


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A sorted Parquet file of the row keys of a delete, each once.

    `path` is relative to the instance's data root. `region` contains all of the keys. `sidecars`
    are suffixes of objects beside it.
    """

    path: str
    keys: int
    bytes: int
    region: Region
    sidecars: Annotated[tuple[str, ...], Member(optional=True)] = ()


@dataclass(frozen=True, slots=True)
class FileReference:
    """The rows of a file in a partition.

    `rows` is exact, or an estimate once the reference was pushed down from a wider partition.
    """

    path: str
    partition_id: PartitionId
    rows: int
    job_id: str | None = None


def new_data_path(table_id: str, partition_id: PartitionId, run_start_ms: int) -> str:
    """Returns a new path: `<table id>/data/partition_<id>/<run start, 13 digits>-<id>.parquet`."""
    name = f"{run_start_ms:013d}-{uuid.uuid4().hex[:16]}.parquet"
    return f"{table_id}/data/partition_{partition_id}/{name}"


def new_key_path(table_id: str, run_start_ms: int) -> str:
    """Returns a new path: `<table id>/data/deletes/<run start, 13 digits>-<id>.parquet`."""
    return f"{table_id}/data/deletes/{run_start_ms:013d}-{uuid.uuid4().hex[:16]}.parquet"


def owner_id(path: str) -> str:
    """Returns the id of the table that owns the object: the first part of its path."""
    return path.partition("/")[0]


def parse_run_start(path: str) -> int | None:
    """Returns the start in ms of the run that wrote the object, or None if its name has none."""
    match = _RUN_START.search(path)
    return int(match.group(1)) if match else None
