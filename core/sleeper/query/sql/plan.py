"""Plans of SQL statements, which read whole tables or regions of them, file by file."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleeper.files import DataFile, bounds_region
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import (
    Region,
    covers,
    hull,
    join_ascending,
    smallest_key,
    whole_region,
)
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.schema.model import Schema
from sleeper.statestore.reading.delete_queries import Delete
from sleeper.statestore.reading.table_state import TableState

_LEAF_LOOKUPS_MAX = 256

Reference = tuple[str, PartitionId]
"""The path of a file, and a partition that refers to it."""


@dataclass(frozen=True, slots=True)
class ScanGroup:
    """Files that share a scan, and the regions of their rows to read; `None` for all rows.

    Rows that one of the `deleted` hides are left out. The files have one version of the schema.
    """

    paths: tuple[str, ...]
    regions: tuple[Region, ...] | None
    deleted: tuple[Delete, ...] = ()
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The scans that read every row of a table, or of some regions, once, at one version.

    `processing` is the table's, `time_ms` the time of the version's log entry, `bytes` the size
    of the files. `hides_rows` tells whether the files may have rows that no statement may see, in
    the regions or elsewhere: the engine reads whole pages of rows.
    """

    schema: Schema
    version: int
    groups: tuple[ScanGroup, ...]
    processing: Processing = NO_PROCESSING
    time_ms: int = 0
    bytes: int = 0
    hides_rows: bool = False

    @property
    def paths(self) -> list[str]:
        """The files to read."""
        return [path for group in self.groups for path in group.paths]


def plan_table(
    schema: Schema, state: TableState, regions: Sequence[Region] | None = None
) -> TablePlan:
    """Returns the plan of a table: of each file, the rows in the partitions that refer to it.

    A file whose references cover its key bounds is read whole. Compactions have replaced some
    partitions' rows of other files, which are grouped by their remaining partitions. Files
    without rows of `regions` are omitted; the plan may contain other rows too.
    """
    files, references = _files(state, regions)
    unions = _unions(state, references)
    within = whole_region(schema) if regions is None else hull(regions) if regions else None
    deletes = [] if within is None else state.deletes.overlapping(within)
    size = 0
    # The files of a scan share the deletes that are applied in none of them.
    groups: dict[tuple[tuple[Region, ...] | None, int, int], list[str]] = defaultdict(list)
    for file in files:
        union = unions[file.path]
        is_whole = covers(union, bounds_region(schema, file))
        applied = _count_applied(file, deletes)
        groups[None if is_whole else union, applied, file.schema_version].append(file.path)
        size += file.bytes
    scans = [
        ScanGroup(tuple(paths), union, tuple(deletes[applied:]), schema_version)
        for (union, applied, schema_version), paths in groups.items()
    ]
    processing = state.processing
    is_cut = any(scan.regions is not None for scan in scans)
    return TablePlan(
        schema,
        state.version,
        tuple(scans),
        processing,
        state.version_time_ms,
        size,
        is_cut or bool(processing.filters) or state.deletes.count() > 0,
    )


def _count_applied(file: DataFile, deletes: Sequence[Delete]) -> int:
    """Returns the number of leading deletes that need not be applied to the file's rows."""
    applied = bisect_right(deletes, file.applied or 0, key=lambda each: each.number)
    low, high = file.smallest_key, file.largest_key
    is_hit = any(d.region.overlaps_bounds(low, high) for d in deletes[applied:])
    return applied if is_hit else len(deletes)


def _files(
    state: TableState, regions: Sequence[Region] | None
) -> tuple[Iterable[DataFile], Iterable[Reference]]:
    """Returns the files that may contain rows of the regions, and at least their references."""
    if regions is None:
        return state.files.all(), state.files.referring()
    leaves = state.partitions.leaves_overlapping(regions)
    if len(leaves) > _LEAF_LOOKUPS_MAX:
        return (f for f in state.files.all() if _overlaps(f, regions)), state.files.referring()
    leaf_files = [f for leaf in leaves for f in state.files.leaf_files(leaf.id, leaf.region)]
    overlapping = {f.path: f for f in leaf_files if _overlaps(f, regions)}
    references = state.files.file_references(list(overlapping))
    return overlapping.values(), ((each.path, each.partition_id) for each in references)


def _overlaps(file: DataFile, regions: Sequence[Region]) -> bool:
    return any(r.overlaps_bounds(file.smallest_key, file.largest_key) for r in regions)


def _unions(state: TableState, references: Iterable[Reference]) -> dict[str, tuple[Region, ...]]:
    """Returns the regions of the partitions that refer to each file, adjacent ones joined."""
    referring: dict[str, list[PartitionId]] = defaultdict(list)
    for path, partition_id in references:
        referring[path].append(partition_id)
    by_id = _read_regions(state, {i for ids in referring.values() for i in ids})
    # Most files of a table with many leaves have most of them, so the leaves are sorted once.
    ascending = sorted(by_id, key=lambda i: smallest_key(by_id[i]))
    regions = [by_id[i] for i in ascending]
    ranks = {partition_id: rank for rank, partition_id in enumerate(ascending)}
    return {
        path: tuple(join_ascending([regions[rank] for rank in sorted(ranks[i] for i in ids)]))
        for path, ids in referring.items()
    }


def _read_regions(state: TableState, ids: set[PartitionId]) -> dict[PartitionId, Region]:
    if len(ids) <= _LEAF_LOOKUPS_MAX:
        return {i: state.partitions.get(i).region for i in ids}
    return {p.id: p.region for p in state.partitions.with_files() if p.id in ids}
