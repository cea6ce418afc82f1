"""What a merge reads, processes and returns.

A data file of a table with `LatestRows` has a key at most once. So it is sorted by key and by rank,
which is the field `by`, if there is one, and then the transaction number of the row, both
descending. In a merge in this order the first row of each key is the newest, and a filter above
the merge keeps it. A row that is a *tombstone* hides its key, and is dropped after that.

The rows of a file of one ingest have one number, which is a constant of the plan. Files with rows
of several numbers, which compactions write, have the column `__number`; files with tombstones have
`__deleted`, which is null in rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.deletes import DeletedRows
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.partitions.region import Region, key_of_region
from sleeper.schema.model import (
    DELETED_COLUMN,
    NUMBER_COLUMN,
    Field,
    PrimitiveType,
    Schema,
)

_MIB = 1024**2
# Memory per open input, measured by the benchmark `merge-memory` (docs/design/0002-merge.md).
# Batches and pages:
_OPEN_INPUT_BYTES = 4 * _MIB
# Each input has a reading thread, whose allocator reuses memory that other threads freed only at
# every hundredth allocation: some 35 row groups of a narrow table, or the whole file.
_ROW_GROUP_BYTES = _MIB
_ROW_GROUPS_KEPT = 35
# A page of each column.
_BYTES_READ_PER_KEY = _MIB // 2
# Over several passes there are about twice as many threads as inputs, and they read more files.
_THREADS_OVER_PASSES = 2
# Ids of the fields of a table are small.
NUMBER_FIELD = Field(NUMBER_COLUMN, PrimitiveType.LONG, id=2_000_000_001)
_DELETED_FIELD = Field(DELETED_COLUMN, PrimitiveType.BOOLEAN, nullable=True, id=2_000_000_002)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a merge of latest rows writes for later merges: hidden columns and tombstones.

    Tombstones with a number of at most `hiding_from` hide nothing and are dropped.
    """

    has_numbers: bool = True
    has_tombstones: bool = True
    hiding_from: int = 0


def with_hidden(schema: Schema, has_numbers: bool, has_tombstones: bool) -> Schema:
    """Returns the fields of a data file of the table, with the hidden columns that it has."""
    hidden = [NUMBER_FIELD] * has_numbers + [_DELETED_FIELD] * has_tombstones
    return replace(schema, values=(*schema.values, *hidden), latest=None)


@dataclass(frozen=True, slots=True)
class MergeInput:
    """A sorted file and the regions of its rows to read, None for every row.

    `bytes` is the file's size, which determines its memory while open; None if unknown. The
    `deleted` rows are left out. `schema_version` is that of the file, None for the version of the
    merge. `number` is the transaction number of all rows, None if the file has a column of them;
    only a table of latest rows and a numbered merge need it. `rows` are used instead of the file:
    those of the regions, in file order, with the fields of the file's schema.
    """

    url: str
    regions: Sequence[Region] | None = None
    bytes: int | None = None
    deleted: DeletedRows | None = None
    schema_version: int | None = None
    number: int | None = None
    rows: pa.Table | None = None

    def open_bytes(self, schema: Schema) -> int:
        """Returns the estimated memory of the input in a merge of all inputs."""
        if self.rows is not None:
            return int(self.rows.nbytes)
        most = _ROW_GROUPS_KEPT * _ROW_GROUP_BYTES
        size = most if self.bytes is None else self.bytes
        if self.regions is not None and all(
            key_of_region(schema, r) is not None for r in self.regions
        ):
            size = min(size, len(self.regions) * _BYTES_READ_PER_KEY)
        return _OPEN_INPUT_BYTES + min(size, most)

    def pass_bytes(self) -> int:
        """Returns the estimated memory of the input in a merge in passes."""
        size = _ROW_GROUP_BYTES if self.bytes is None else min(self.bytes, _ROW_GROUP_BYTES)
        return _OPEN_INPUT_BYTES + _THREADS_OVER_PASSES * _ROW_GROUPS_KEPT * size


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A merge. `columns` are field names in result order, None for all.

    Rows pass through `steps` in order. With steps, the inputs must hold all rows of each key.
    Regions are of row keys, so they may be applied first. `stored` is set if a merge of latest
    rows is written to a file for later merges. A `numbered` merge of all rows adds the column
    `__number`, the number of each row's input, and of a group of rows the largest; it has neither
    columns nor iterators.
    """

    schema: Schema
    inputs: tuple[MergeInput, ...]
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    steps: tuple[ProcessingStep, ...] = ()
    stored: Stored | None = None
    numbered: bool = False

    @property
    def is_iterated(self) -> bool:
        """Whether one of the steps has an iterator."""
        return any(step.iterator is not None for step in self.steps)

    def stored_fields(self, each: MergeInput, version: int | None) -> Schema:
        """Returns the fields of an input in a version of the schema, with its hidden columns.

        The schema may have fewer fields than its version: then only these are read.
        """
        fields, has_numbers = self.schema.at(version), each.number is None
        if self.schema.latest is not None:
            return with_hidden(fields, has_numbers, has_tombstones=True)
        return with_hidden(fields, True, False) if self.numbered and has_numbers else fields


def group_inputs(
    schema: Schema, inputs: Sequence[MergeInput], settings: EngineSettings
) -> list[tuple[MergeInput, ...]]:
    """Returns one group if all inputs may be open at once, else groups to merge in a pass."""
    is_few = len(inputs) <= settings.merge_files_max
    fit = sum(i.open_bytes(schema) for i in inputs) <= settings.memory_bytes
    if len(inputs) < 3 or (is_few and fit):
        return [tuple(inputs)]
    groups: list[list[MergeInput]] = []
    room = 0
    for each in inputs:
        size = each.pass_bytes()
        is_full = groups and len(groups[-1]) >= settings.merge_files_max
        if not groups or is_full or (size > room and len(groups[-1]) >= 2):
            groups.append([])
            room = settings.memory_bytes
        groups[-1].append(each)
        room -= size
    return [tuple(g) for g in groups]
