"""Plans of SQL statements, which read whole tables or regions of them, file by file."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleeper.files import DataFile, FileReference, bounds_region
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Region, covers, hull, join_regions, whole_region
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.schema.model import Schema
from sleeper.statestore.reading.delete_queries import Delete
from sleeper.statestore.reading.table_state import TableState

_LEAF_LOOKUPS_MAX = 256


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
    referring: dict[str, list[PartitionId]] = defaultdict(list)
    for reference in references:
        referring[reference.path].append(reference.partition_id)
    regions_by_id = _read_regions(state, {i for ids in referring.values() for i in ids})
    unions: dict[tuple[PartitionId, ...], list[Region]] = {}
    within = whole_region(schema) if regions is None else hull(regions) if regions else None
    deletes = [] if within is None else state.deletes.overlapping(within)
    # The files of a scan share the deletes that are applied in none of them.
    groups: dict[tuple[tuple[PartitionId, ...] | None, int, int], list[str]] = defaultdict(list)
    size = 0
    for file in files:
        ids = tuple(sorted(referring[file.path]))
        if ids not in unions:
            unions[ids] = join_regions([regions_by_id[i] for i in ids])
        is_whole = covers(unions[ids], bounds_region(schema, file))
        applied = _count_applied(file, deletes)
        groups[None if is_whole else ids, applied, file.schema_version].append(file.path)
        size += file.bytes
    scans = [
        ScanGroup(
            tuple(paths),
            None if ids is None else tuple(unions[ids]),
            tuple(deletes[applied:]),
            schema_version,
        )
        for (ids, applied, schema_version), paths in groups.items()
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
) -> tuple[Iterable[DataFile], Iterable[FileReference]]:
    """Returns the files that may contain rows of the regions, and at least their references."""
    if regions is None:
        return state.files.all(), state.files.references()
    leaves = state.partitions.leaves_overlapping(regions)
    if len(leaves) > _LEAF_LOOKUPS_MAX:
        return (f for f in state.files.all() if _overlaps(f, regions)), state.files.references()
    leaf_files = [f for leaf in leaves for f in state.files.leaf_files(leaf.id, leaf.region)]
    overlapping = {f.path: f for f in leaf_files if _overlaps(f, regions)}
    return overlapping.values(), state.files.file_references(list(overlapping))


def _overlaps(file: DataFile, regions: Sequence[Region]) -> bool:
    return any(r.overlaps_bounds(file.smallest_key, file.largest_key) for r in regions)


def _read_regions(state: TableState, ids: set[PartitionId]) -> dict[PartitionId, Region]:
    if len(ids) <= _LEAF_LOOKUPS_MAX:
        return {i: state.partitions.get(i).region for i in ids}
    return {p.id: p.region for p in state.partitions.all() if p.id in ids}
