"""Plans of whole tables for SQL: the files of a version, and their rows to read."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleeper.files import DataFile, FileReference
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.schema.model import Schema, next_key_value, precedes
from sleeper.statestore.reading.table_state import TableState

_LEAF_LOOKUPS_MAX = 256


@dataclass(frozen=True, slots=True)
class ScanGroup:
    """Files that share a scan, and the regions of their rows to read; `None` for all rows."""

    paths: tuple[str, ...]
    regions: tuple[Region, ...] | None


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The scans that read every row of a table, or of some regions, once, at one version.

    `processing` is the table's, `time_ms` the time of the version's log entry, `bytes` the size
    of the files.
    """

    schema: Schema
    version: int
    groups: tuple[ScanGroup, ...]
    processing: Processing = NO_PROCESSING
    time_ms: int = 0
    bytes: int = 0

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
    known = _read_regions(state, {i for ids in referring.values() for i in ids})
    unions: dict[tuple[PartitionId, ...], list[Region]] = {}
    groups: dict[tuple[PartitionId, ...] | None, list[str]] = defaultdict(list)
    size = 0
    for file in files:
        ids = tuple(sorted(referring[file.path]))
        if ids not in unions:
            unions[ids] = join_regions([known[i] for i in ids])
        is_whole = covers(unions[ids], bounds_region(schema, file))
        groups[None if is_whole else ids].append(file.path)
        size += file.bytes
    scans = [
        ScanGroup(tuple(paths), None if ids is None else tuple(unions[ids]))
        for ids, paths in groups.items()
    ]
    return TablePlan(
        schema, state.version, tuple(scans), state.processing, state.version_time_ms, size
    )


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


def bounds_region(schema: Schema, file: DataFile) -> Region:
    """Returns the smallest region that contains every key within the file's bounds."""
    bounds = zip(schema.row_keys, file.smallest_key, file.largest_key, strict=True)
    return Region(tuple(Range(low, next_key_value(field, high)) for field, low, high in bounds))


def join_regions(regions: Iterable[Region]) -> list[Region]:
    """Returns the same keys in fewer regions: adjacent regions of one field are joined."""
    ascending = sorted(regions, key=lambda r: [x.min for x in r.ranges])
    if not ascending or len(ascending[0].ranges) > 1:
        return ascending
    joined: list[Range] = []
    for (within,) in (r.ranges for r in ascending):
        if joined and joined[-1].max == within.min:
            joined[-1] = Range(joined[-1].min, within.max)
        else:
            joined.append(within)
    return [Region((r,)) for r in joined]


def covers(regions: Sequence[Region], box: Region) -> bool:
    """Returns whether the regions together contain all of the box."""
    left = [box]
    for region in regions:
        left = [piece for whole in left for piece in _without(whole, region)]
        if not left:
            return True
    return False


def _without(whole: Region, region: Region) -> list[Region]:
    """Returns the parts of a region outside another."""
    both = whole.intersect(region)
    if both is None:
        return [whole]
    pieces = []
    ranges = list(whole.ranges)
    for place, (outer, inner) in enumerate(zip(whole.ranges, both.ranges, strict=True)):
        before, after = ranges[:place], ranges[place + 1 :]
        if precedes(outer.min, inner.min):
            pieces.append(Region((*before, Range(outer.min, inner.min), *after)))
        if inner.max is not None and inner.max != outer.max:
            pieces.append(Region((*before, Range(inner.max, outer.max), *after)))
        ranges[place] = inner
    return pieces
