"""Reads of a table from its data files, by engines that neither merge nor process rows.

They are possible where each row of the query is a row of a file: the table and the query have no
filter, aggregation or iterator, and the table shows all rows. The engine reads the *stored* files:
their fields are those of the version that is read, and none of their rows is deleted. Files with
equal regions of rows to read are a *group*, which is one scan of the engine. A table that is
written has files of many groups, so that the smallest of them, and files that are not stored, are
the *rest*, which other processes read in parts.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from sleeper.errors import StateMovedOnError
from sleeper.files import DataFile, bounds_region
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region, covers, join_regions, key_of_region
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.query.distributed.plan import Part
from sleeper.query.distributed.read import Read, TableRead, divide_plan
from sleeper.query.hold import SharedHold, take_shared_hold
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query
from sleeper.query.run import RESTARTS, plan_table_query, query_time
from sleeper.query.service import make_query_table
from sleeper.retries import retry
from sleeper.schema.model import Schema

# Each group is a scan, and each region a condition that is evaluated for the rows of its group.
_GROUPS_MAX = 16
_REGIONS_MAX = 64

_Regions = tuple[Region, ...] | None


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Paths of data files, and the regions of their rows to read; `None` for all rows."""

    paths: tuple[str, ...]
    regions: _Regions


@dataclass(frozen=True, slots=True)
class FileRead:
    """A read of data files at one version.

    The rows of the groups and of the `parts`, which `rest` reads, are the rows of the query, each
    once. `hold` protects the files. It is None if there are none.
    """

    schema: Schema
    groups: tuple[FileGroup, ...]
    hold: SharedHold | None
    rest: TableRead
    parts: tuple[Part, ...]


def plan_file_read(table: OpenTable, query: Query, owner: str, part_bytes: int) -> FileRead | None:
    """Plans the query at its version and holds it for the owner; None if that is impossible.

    Keys are not looked up with a rest, whose files would be read without their key filters. The
    parts of the rest are of about `part_bytes`. InvalidRequestError if the query does not fit the
    schema, or its version cannot be read.
    """
    engine = table.instance.queries.engine()
    files_max = table.instance.properties().get(SPLITTING_FILES_MAX)

    def attempt() -> FileRead | None:
        plan = plan_table_query(query, make_query_table(table))
        if not _keeps_rows(plan, query):
            return None
        groups, leaves = divide_files(plan)
        hold = None
        if plan.leaves:
            if not groups or (leaves and _is_lookup(query, plan.schema)):
                return None
            seconds = engine.settings.hold_seconds
            hold = take_shared_hold(table.state, plan.version, seconds, engine.clock, owner)
        read = Read(query, replace(plan, leaves=()), query_time(plan, query, engine), hold)
        rest = replace(plan, leaves=leaves)
        parts = divide_plan(rest, table.instance.storage.root, part_bytes, files_max)
        return FileRead(plan.schema, groups, hold, TableRead(table.ref, read), tuple(parts))

    return retry(attempt, on=StateMovedOnError, backoff=RESTARTS)


def _keeps_rows(plan: QueryPlan, query: Query) -> bool:
    """Returns whether the rows of the plan are rows of its files."""
    return (
        (query.raw or plan.processing.keeps_rows)
        and query.processing.keeps_rows
        and query.limit is None
        and plan.schema.latest is None
    )


def _is_lookup(query: Query, schema: Schema) -> bool:
    return query.regions is not None and all(key_of_region(schema, r) for r in query.regions)


def divide_files(
    plan: QueryPlan, groups_max: int = _GROUPS_MAX, regions_max: int = _REGIONS_MAX
) -> tuple[tuple[FileGroup, ...], tuple[LeafPlan, ...]]:
    """Returns the largest groups of stored files, and the leaves of the rest.

    There are at most `groups_max` groups, which have at most `regions_max` regions together.
    """
    groups = _choose_groups(_group_stored(plan), groups_max, regions_max)
    return groups, tuple(_without_files(plan, {path for g in groups for path in g.paths}))


def _group_stored(plan: QueryPlan) -> dict[_Regions, list[DataFile]]:
    """Returns the stored files of the plan by the regions to read."""
    scans_of: dict[str, list[FileScan]] = defaultdict(list)
    for leaf in plan.leaves:
        for scan in leaf.scans:
            scans_of[scan.file.path].append(scan)
    groups: dict[_Regions, list[DataFile]] = defaultdict(list)
    for scans in scans_of.values():
        if all(_is_stored(plan.schema, scan) for scan in scans):
            groups[_regions(plan.schema, scans)].append(scans[0].file)
    return groups


def _is_stored(schema: Schema, scan: FileScan) -> bool:
    version = scan.file.schema_version
    has_fields = version == schema.version or schema.at(version).fields == schema.fields
    return has_fields and not scan.deleted


def _choose_groups(
    groups: dict[_Regions, list[DataFile]], groups_max: int, regions_max: int
) -> tuple[FileGroup, ...]:
    """Returns the groups of the most bytes that the limits allow."""
    by_bytes = sorted(groups.items(), key=lambda each: -sum(file.bytes for file in each[1]))
    chosen: list[FileGroup] = []
    for regions, files in by_bytes:
        count = len(regions or ())
        if len(chosen) < groups_max and count <= regions_max:
            regions_max -= count
            chosen.append(FileGroup(tuple(file.path for file in files), regions))
    return tuple(chosen)


def _without_files(plan: QueryPlan, paths: Collection[str]) -> Iterator[LeafPlan]:
    for leaf in plan.leaves:
        scans = tuple(scan for scan in leaf.scans if scan.file.path not in paths)
        if scans:
            yield replace(leaf, scans=scans)


def _regions(schema: Schema, scans: Iterable[FileScan]) -> _Regions:
    """Returns the regions of a file to read for all of its leaves; None for all rows."""
    regions: list[Region] = []
    for scan in scans:
        if scan.regions is None:
            return None
        regions += scan.regions
    joined = join_regions(regions)
    (first, *_) = scans
    return None if covers(joined, bounds_region(schema, first.file)) else tuple(joined)
