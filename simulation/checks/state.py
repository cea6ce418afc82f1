"""Rules of a table's state: partitions, references, files, jobs and the horizon. No row is read."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.journal import HeldRead, Pin
from sleeper.files import FileReference, owner_id
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Region, whole_region
from sleeper.properties.table import FOLLOWER_RETENTION
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.rows import sidecars_from_column

_TILES = "partitions tile the key space"
_OVERLAP = "references of a file never overlap"
_EXISTS = "every file that is needed exists"
_COUNTED = "the references of a file are counted"
_ASSIGNED = "assigned files have a job"
_HORIZON = "the horizon passes no reader"
_HELD = "a version that is held can be read"
_RELEASED = "a released hold keeps nothing"


def check_state(
    table: OpenTable,
    model: TableModel,
    pins: Iterable[Pin] = (),
    released: Collection[str] = (),
) -> None:
    """Checks the newest state of the table, which the model has seen.

    `released` are the ids of holds whose release was acknowledged.
    """
    with table.state.reading() as state:
        partitions = list(state.partitions.all())
        regions = {each.id: each.region for each in partitions}
        check_tree(partitions, whole_region(state.schema))
        check_references(list(state.files.references()), regions)
        check_counts(state)
        check_objects(table.instance, _needed_files(state))
        check_jobs(state)
        check_horizon(state, model, pins)
        starts = state.collection.follower_starts()
    check_released(table, model, released)
    if starts and not model.is_snapshot_table:
        check_followers(table)


def check_tree(partitions: Sequence[Partition], whole: Region) -> None:
    """Checks that the children of each partition tile it, and that there is one root."""
    children: dict[PartitionId, list[Partition]] = defaultdict(list)
    by_id = {each.id: each for each in partitions}
    for each in partitions:
        if each.parent_id is None:
            require(each.region == whole, _TILES, "a root is not the key space", root=each)
        else:
            children[each.parent_id].append(each)
    require(len(by_id) == len(partitions), _TILES, "a partition id is used twice")
    roots = [each for each in partitions if each.parent_id is None]
    require(len(roots) == 1, _TILES, "there is not one root", roots=roots)
    for each in partitions:
        below = children.get(each.id, [])
        require(each.is_leaf == (not below), _TILES, "a leaf has children", partition=each)
        if below:
            _check_tiling(each.region, [child.region for child in below])


def _check_tiling(parent: Region, below: Sequence[Region]) -> None:
    """Checks that the regions divide the parent along one field."""
    different = [
        i for i, within in enumerate(parent.ranges) if any(r.ranges[i] != within for r in below)
    ]
    require(len(different) == 1, _TILES, "children differ in several fields", below=below)
    ranges = sorted((region.ranges[different[0]] for region in below), key=lambda r: r.min)
    within = parent.ranges[different[0]]
    ends = [within.min, *(r.max for r in ranges)]
    is_tiled = [r.min for r in ranges] == ends[:-1] and ends[-1] == within.max
    require(is_tiled, _TILES, "children leave a gap or overlap", parent=parent, below=below)


def check_references(
    references: Sequence[FileReference], regions: dict[PartitionId, Region]
) -> None:
    """Checks that no row of a file is in two of its references."""
    seen: dict[str, list[Region]] = defaultdict(list)
    for reference in references:
        region = regions[reference.partition_id]
        for other in seen[reference.path]:
            require(not other.overlaps(region), _OVERLAP, reference.path, regions=(region, other))
        seen[reference.path].append(region)


def check_counts(state: TableState) -> None:
    """Checks that each file has the number of references that says when it has lost the last."""
    wrong = state.query(VersionReader).rows(
        "SELECT path, references_left FROM files WHERE references_left <>"
        " (SELECT count(*) FROM refs WHERE file = files.key AND removed IS NULL)"
    )
    require(not wrong, _COUNTED, "the count is wrong", files=wrong[:5])


def _needed_files(state: TableState) -> set[str]:
    """Returns the objects of data files and key files that no collection has begun with."""
    reader = state.query(VersionReader)
    rows = reader.rows("SELECT path, sidecars FROM files WHERE collecting IS NULL")
    rows += reader.rows("SELECT path, sidecars FROM key_files WHERE collecting IS NULL")
    return {path + suffix for path, text in rows for suffix in ("", *sidecars_from_column(text))}


def check_objects(instance: Instance, paths: set[str]) -> None:
    """Checks that the objects exist."""
    stored: set[str] = set()
    for owner in sorted({owner_id(path) for path in paths}):
        stored |= {each.path for each in instance.storage.root.list_objects(f"{owner}/data/")}
    missing = sorted(paths - stored)
    require(not missing, _EXISTS, "objects are missing", missing=missing[:5])


def check_jobs(state: TableState) -> None:
    """Checks that references are assigned to jobs that exist, and that jobs have references."""
    reader = state.query(VersionReader)
    orphans = reader.rows(
        "SELECT job FROM refs WHERE job IS NOT NULL AND removed IS NULL"
        " AND job NOT IN (SELECT key FROM jobs)"
    )
    require(not orphans, _ASSIGNED, "references of no job", jobs=orphans)
    idle = reader.rows(
        "SELECT id FROM jobs WHERE key NOT IN"
        " (SELECT job FROM refs WHERE job IS NOT NULL AND removed IS NULL)"
    )
    require(not idle, _ASSIGNED, "jobs without references", jobs=idle)


def check_horizon(state: TableState, model: TableModel, pins: Iterable[Pin]) -> None:
    """Checks that the horizon passes no pin of the journal that has not expired."""
    require(
        state.horizon == model.horizon or state.number != model.number,
        _HORIZON,
        f"the horizon is {state.horizon}, the log has {model.horizon}",
        table=model.id,
    )
    # A hold that is taken while the horizon is raised may be below it.
    kept_from = state.forgotten_below
    for pin in pins:
        is_kept = pin.expiry_ms <= state.time_ms or pin.version >= kept_from
        if pin.table_id == model.id:
            reason = f"versions below {kept_from} are forgotten"
            require(is_kept, _HORIZON, reason, table=model.id, pin=pin)


def check_released(table: OpenTable, model: TableModel, released: Collection[str]) -> None:
    """Checks that no hold that was released is left."""
    left = [hold for hold in table.state.holds.all() if hold.id in released]
    require(not left, _RELEASED, "holds are left", table=model.id, holds=left)


def check_held(table: OpenTable, reads: Iterable[HeldRead], now_ms: int) -> None:
    """Checks that open readers that have met no fault have a hold or floor that is not over.

    And that the state has not forgotten their versions.
    """
    with table.state.reading() as state:
        kept_from = state.forgotten_below
    holds = [each for each in table.state.holds.all() if each.expiry_ms > now_ms]
    held = {each.version for each in holds}
    floor = min((each.version for each in holds if each.is_floor), default=math.inf)
    for read in reads:
        is_held = read.version in held or read.version >= floor or not read.is_kept()
        require(is_held, _HELD, f"no hold of version {read.version}", table=read.table_id)
        is_kept = read.version >= kept_from or not read.is_kept()
        require(is_kept, _HELD, f"version {read.version} is forgotten", table=read.table_id)


def check_followers(table: OpenTable) -> None:
    """Checks that no follower has lost changes, if the table keeps those for them."""
    lost = [each for each in table.state.followers() if each.is_passed]
    if lost and table.properties().get(FOLLOWER_RETENTION) is None:
        require(not lost, _HORIZON, "followers lost changes", table=table.ref.id, lost=lost)
