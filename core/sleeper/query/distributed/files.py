"""Reads of a table from its data files alone, by engines that neither merge nor process rows.

They are possible where each row of the query is a row of a file, as it is stored there: the table
and the query have no filter, aggregation or iterator, the table shows all rows, no delete is left
to apply, and the files have the fields of the version that is read.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sleeper.errors import StateMovedOnError
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region, covers, join_regions
from sleeper.query.hold import SharedHold, take_shared_hold
from sleeper.query.plan import FileScan, QueryPlan, bounds_region
from sleeper.query.request import Query
from sleeper.query.run import RESTARTS, plan_table_query
from sleeper.query.service import make_query_table
from sleeper.retries import retry
from sleeper.schema.model import Schema

# A table that was rarely compacted has files of many kinds, each of which would be a scan.
_GROUPS_MAX = 16
_REGIONS_MAX = 64


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Paths of data files, and the regions of their rows to read; `None` for all rows."""

    paths: tuple[str, ...]
    regions: tuple[Region, ...] | None


@dataclass(frozen=True, slots=True)
class FileRead:
    """A read of data files at one version. Each row of the groups is a row of the query.

    `hold` protects the files. It is None if there are none.
    """

    schema: Schema
    groups: tuple[FileGroup, ...]
    hold: SharedHold | None


def plan_file_read(table: OpenTable, query: Query, owner: str) -> FileRead | None:
    """Plans the query at its version and holds it for the owner; None if it needs a merge.

    InvalidRequestError if the query does not fit the schema, or its version cannot be read.
    """
    engine = table.instance.queries.engine()

    def attempt() -> FileRead | None:
        plan = plan_table_query(query, make_query_table(table))
        groups = group_files(plan) if _has_stored_rows(plan, query) else None
        if groups is None or not groups:
            return None if groups is None else FileRead(plan.schema, (), None)
        seconds = engine.settings.hold_seconds
        hold = take_shared_hold(table.state, plan.version, seconds, engine.clock, owner)
        return FileRead(plan.schema, groups, hold)

    return retry(attempt, on=StateMovedOnError, backoff=RESTARTS)


def _has_stored_rows(plan: QueryPlan, query: Query) -> bool:
    """Returns whether the rows of the plan are rows of its files."""
    schema = plan.schema
    versions = {file.schema_version for file in plan.files} - {schema.version}
    return (
        (query.raw or plan.processing.keeps_rows)
        and query.processing.keeps_rows
        and query.limit is None
        and schema.latest is None
        and all(schema.at(version).fields == schema.fields for version in versions)
    )


def group_files(plan: QueryPlan) -> tuple[FileGroup, ...] | None:
    """Returns the files of a plan by the regions to read; None for deletes or too many regions."""
    scans_of: dict[str, list[FileScan]] = defaultdict(list)
    for leaf in plan.leaves:
        for scan in leaf.scans:
            if scan.deleted:
                return None
            scans_of[scan.file.path].append(scan)
    groups: dict[tuple[Region, ...] | None, list[str]] = defaultdict(list)
    for path, scans in scans_of.items():
        groups[_regions(plan.schema, scans)].append(path)
    regions = sum(len(each or ()) for each in groups)
    if len(groups) > _GROUPS_MAX or regions > _REGIONS_MAX:
        return None
    return tuple(FileGroup(tuple(paths), each) for each, paths in groups.items())


def _regions(schema: Schema, scans: Iterable[FileScan]) -> tuple[Region, ...] | None:
    """Returns the regions of a file to read for all of its leaves; None for all rows."""
    regions: list[Region] = []
    for scan in scans:
        if scan.regions is None:
            return None
        regions += scan.regions
    joined = join_regions(regions)
    (first, *_) = scans
    return None if covers(joined, bounds_region(schema, first.file)) else tuple(joined)
