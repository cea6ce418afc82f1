"""Plans of the merges of leaves, and of neighbouring leaves together.

Small ingests into many leaves make files of which each leaf has a few rows. A merge for each leaf
would open every file as often as there are leaves. A merge of several leaves gives their rows in
key order too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sleeper.files import DataFile, bounds_region
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Region, covers, join_regions
from sleeper.schema.model import Schema
from sleeper.statestore.reading.delete_queries import Delete

# They bound what a merge reads before its first row.
_JOINED_BYTES_MAX = 32 * 1024**2
_JOINED_FILES_MAX = 64


@dataclass(frozen=True, slots=True)
class FileScan:
    """A file to read, and the regions of its rows to read; `None` for all rows.

    Rows that one of the `deleted` hides are left out.
    """

    file: DataFile
    regions: Sequence[Region] | None
    deleted: tuple[Delete, ...] = ()


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """The files to merge for a leaf, or for several whose rows alternate in key order.

    There is at least one scan, and one per file.
    """

    leaf_ids: tuple[PartitionId, ...]
    scans: tuple[FileScan, ...]


def join_neighbours(schema: Schema, plans: Sequence[LeafPlan]) -> list[LeafPlan]:
    """Returns plans of the same rows, in the same order, that open files less often.

    A plan joins the ones before it if they read at least half of its files.
    """
    return [join_plans(schema, group) for group in _neighbours(plans)]


def _neighbours(plans: Sequence[LeafPlan]) -> Iterator[list[LeafPlan]]:
    sharing = Counter(scan.file.path for plan in plans for scan in plan.scans)
    group: list[LeafPlan] = []
    files: set[str] = set()
    total = 0.0
    for plan in plans:
        own = {scan.file.path for scan in plan.scans}
        size = sum(scan.file.bytes / sharing[scan.file.path] for scan in plan.scans)
        is_near = 2 * len(own & files) >= len(own) and len(own | files) <= _JOINED_FILES_MAX
        if group and not (is_near and total + size <= _JOINED_BYTES_MAX):
            yield group
            group, files, total = [], set(), 0.0
        group.append(plan)
        files |= own
        total += size
    if group:
        yield group


def join_plans(schema: Schema, plans: Sequence[LeafPlan]) -> LeafPlan:
    """Merges the plans of several leaves."""
    if len(plans) == 1:
        return plans[0]
    scans: dict[str, list[FileScan]] = defaultdict(list)
    for plan in plans:
        for scan in plan.scans:
            scans[scan.file.path].append(scan)
    leaf_ids = tuple(i for plan in plans for i in plan.leaf_ids)
    return LeafPlan(leaf_ids, tuple(_join_scans(schema, each) for each in scans.values()))


def _join_scans(schema: Schema, scans: Sequence[FileScan]) -> FileScan:
    if len(scans) == 1:
        return scans[0]
    file = scans[0].file
    regions = join_regions(r for scan in scans for r in scan.regions or ())
    is_whole = covers(regions, bounds_region(schema, file))
    deleted = tuple(dict.fromkeys(r for scan in scans for r in scan.deleted))
    return FileScan(file, None if is_whole else tuple(regions), deleted)
