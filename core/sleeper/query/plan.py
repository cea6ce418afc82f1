"""Plans of queries by key: the files, and their regions, that may contain rows, leaf after leaf."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sleeper.errors import InvalidRequestError
from sleeper.files import DataFile, bounds_region
from sleeper.partitions.key_regions import KeyRegions
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import (
    Range,
    Region,
    disjoint_regions,
    hull,
    subtract_regions,
    whole_region,
)
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.properties.instance import QUERY_BYTES_MAX
from sleeper.query.leaf_plan import FileScan, LeafPlan, join_plans
from sleeper.query.leaf_source import LeafSource, LeavesOfRegion, StateLeaves
from sleeper.query.request import Query
from sleeper.schema.model import Schema, next_key_value, precedes
from sleeper.statestore.reading.delete_queries import Delete, find_deleted
from sleeper.statestore.reading.table_state import TableState

# More pieces cost every row more comparisons than the filter of deleted rows.
_DELETED_PIECES_MAX = 8
_SUBTRACTIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SelectedLeaf:
    """A leaf, the query's regions within it, and its plan with at least one scan."""

    leaf: Partition
    regions: Sequence[Region]
    plan: LeafPlan


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The leaves that may contain rows, at one version, in key order.

    `processing` is the table's, `time_ms` the time of the version's log entry.
    """

    schema: Schema
    version: int
    leaves: tuple[LeafPlan, ...]
    processing: Processing = NO_PROCESSING
    time_ms: int = 0

    @property
    def files(self) -> list[DataFile]:
        """The files of all scans."""
        return [scan.file for leaf in self.leaves for scan in leaf.scans]


def plan_query(query: Query, schema: Schema, state: TableState) -> QueryPlan:
    """Returns the plan of a query that fits the schema, at the version of the state."""
    return plan_selected(describe_version(schema, state), plan_leaves(query, schema, state))


def describe_version(schema: Schema, state: TableState) -> QueryPlan:
    """Returns a plan at the version of the state that reads no leaf."""
    return QueryPlan(schema, state.version, (), state.processing, state.version_time_ms)


def plan_selected(version: QueryPlan, selected: Sequence[SelectedLeaf]) -> QueryPlan:
    """Returns the plan of the leaves, whose rows are in key order, at the version of a plan."""
    if len(selected) == 1:
        return replace(version, leaves=(selected[0].plan,))
    schema = version.schema
    placed = [(_extent(schema, each.regions, each.plan), each.plan) for each in selected]
    groups = group_in_key_order(schema, placed)
    return replace(version, leaves=tuple(join_plans(schema, group) for group in groups))


def check_has_rows(name: str, state: TableState) -> None:
    """Raises InvalidRequestError with the table's name if a snapshot table has no rows to read."""
    try:
        state.check_has_rows()
    except InvalidRequestError as error:
        raise InvalidRequestError(f"table {name!r}: {error}") from error


def plan_leaves(query: Query, schema: Schema, state: TableState) -> list[SelectedLeaf]:
    """Returns the leaves that may contain rows of the query, in key order."""
    regions = (whole_region(schema),) if query.regions is None else query.regions
    source: LeafSource = StateLeaves(state)
    if len(regions) == 1 and not isinstance(regions, KeyRegions):
        source = LeavesOfRegion(state, regions[0])
    return cut_leaves(regions, schema, source)


def plan_key(
    schema: Schema,
    region: Region,
    leaf_id: PartitionId,
    files: Sequence[DataFile],
    deletes: Sequence[Delete],
) -> LeafPlan:
    """Returns the plan of a region of one key, which the deletes overlap. It may have no scans."""
    key, regions = [within.min for within in region.ranges], (region,)
    scans = [
        FileScan(file, regions)
        for file in files
        if all(map(_is_between, file.smallest_key, key, file.largest_key))
    ]
    if deletes:
        later = _Deletes(deletes)
        scans = [left for scan in scans for left in _without_deleted(schema, scan, later)]
    return LeafPlan((leaf_id,), tuple(scans))


def _is_between(low: Any, value: Any, high: Any) -> bool:
    return bool(low <= value <= high)


def cut_leaves(regions: Iterable[Region], schema: Schema, source: LeafSource) -> list[SelectedLeaf]:
    """Returns the leaves that may contain rows of the regions, in key order."""
    by_leaf = (
        _keys_by_leaf(regions, source)
        if isinstance(regions, KeyRegions)
        else _regions_by_leaf(disjoint_regions(regions), source)
    )
    plans = [
        SelectedLeaf(leaf, within, _plan_leaf(schema, leaf, within, source))
        for leaf, within in by_leaf
    ]
    return [each for each in plans if each.plan.scans]


def _extent(schema: Schema, regions: Sequence[Region], plan: LeafPlan) -> Region:
    """Returns a region with all rows of the regions, by the key bounds of the leaf's files."""
    within = _hull(regions)
    return within.intersect(hull([bounds_region(schema, s.file) for s in plan.scans])) or within


def _hull(regions: Sequence[Region]) -> Region:
    if isinstance(regions, KeyRegions):
        return regions.hull
    return regions[0] if len(regions) == 1 else hull(regions)


def _keys_by_leaf(
    keys: KeyRegions, source: LeafSource
) -> Iterator[tuple[Partition, Sequence[Region]]]:
    """Yields the leaves that contain the keys, in key order, with the keys within each."""
    start = 0
    while start < len(keys):
        (leaf,) = source.leaves_overlapping(keys[start])
        stop = keys.before(leaf.region.ranges[0].max)
        yield leaf, keys[start:stop]
        start = stop


def _regions_by_leaf(
    regions: Sequence[Region], source: LeafSource
) -> list[tuple[Partition, tuple[Region, ...]]]:
    """Returns the leaves that the regions overlap, in key order, with the regions within each."""
    by_leaf: dict[PartitionId, tuple[Partition, list[Region]]] = {}
    last: Partition | None = None
    for region in regions:
        # Ascending keys are mostly in the leaf of the key before, so the tree is not descended
        # for each.
        if last is not None and last.region.intersect(region) == region:
            by_leaf[last.id][1].append(region)
            continue
        for last in source.leaves_overlapping(region):
            both = last.region.intersect(region)
            if both is not None:
                by_leaf.setdefault(last.id, (last, []))[1].append(both)
    ascending = sorted(by_leaf.values(), key=lambda each: [r.min for r in each[0].region.ranges])
    return [(leaf, tuple(within)) for leaf, within in ascending]


def _plan_leaf(
    schema: Schema, leaf: Partition, regions: Sequence[Region], source: LeafSource
) -> LeafPlan:
    scans = []
    within = _hull(regions)
    deletes = _Deletes(source.deletes(leaf.id, within))
    for file in source.leaf_files(leaf.id, within):
        overlapping = _overlapping(regions, file)
        if overlapping:
            is_whole = _contains(overlapping, file)
            scan = FileScan(file, None if is_whole else overlapping)
            scans += _without_deleted(schema, scan, deletes) if deletes else [scan]
    return LeafPlan((leaf.id,), tuple(scans))


class _Deletes:
    """Deletes in the order of their numbers, of which the files of a leaf share the later ones."""

    def __init__(self, deletes: Sequence[Delete]) -> None:
        self._all = deletes
        self._later: dict[int, tuple[Delete, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def hiding(self, file: DataFile) -> tuple[Delete, ...]:
        """Returns those that may hide rows of the file."""
        return find_deleted(file, self._all)

    def after(self, first: Delete) -> tuple[Delete, ...]:
        """Returns those of the number of `first` and of later ones: one tuple per number."""
        if first.number not in self._later:
            start = bisect_left(self._all, first.number, key=_number)
            self._later[first.number] = tuple(self._all[start:])
        return self._later[first.number]


def _number(delete: Delete) -> int:
    return delete.number


def _without_deleted(schema: Schema, scan: FileScan, deletes: _Deletes) -> list[FileScan]:
    """Returns the scan without the rows of deletes, if any are left.

    Few pieces are regions, which prune row groups. A filter leaves out the rows of more deletes,
    and of the keys of key files.
    """
    deleted = deletes.hiding(scan.file)
    if not deleted:
        return [scan]
    whole = (bounds_region(schema, scan.file),) if scan.regions is None else scan.regions
    regions = [each.region for each in deleted if each.keys is None]
    if regions and len(whole) * len(regions) <= _SUBTRACTIONS_MAX:
        left = subtract_regions(whole, regions, len(whole) + _DELETED_PIECES_MAX)
        if left is not None:
            keys = tuple(each for each in deleted if each.keys is not None)
            return [replace(scan, regions=tuple(left), deleted=keys)] if left else []
    return [replace(scan, deleted=deletes.after(deleted[0]))]


def _overlapping(regions: Sequence[Region], file: DataFile) -> Sequence[Region]:
    """Returns the regions that overlap the file's key bounds; the same tuple if all do."""
    low, high = file.smallest_key, file.largest_key
    if len(low) > 1:
        overlapping = tuple(r for r in regions if r.overlaps_bounds(low, high))
        return regions if len(overlapping) == len(regions) else overlapping
    # The regions ascend without overlap, so a binary search finds those near the file. Only the
    # first of these can end before the file begins.
    start = max(bisect_right(regions, low[0], key=_first_min) - 1, 0)
    stop = bisect_right(regions, high[0], key=_first_min)
    if start < stop and not regions[start].overlaps_bounds(low, high):
        start += 1
    return regions[start:stop]


def _contains(regions: Sequence[Region], file: DataFile) -> bool:
    """Returns whether one of the regions that overlap the file contains all of its rows."""
    low, high = file.smallest_key, file.largest_key
    # Of ranges without overlap, only the first can begin before the file.
    near = regions[:1] if len(low) == 1 else regions
    return any(r.contains_bounds(low, high) for r in near)


def _first_min(region: Region) -> Any:
    return region.ranges[0].min


def check_size(bytes_of_files: int, bytes_max: int) -> None:
    """Raises `InvalidRequestError` if a query reads larger files than allowed. 0 is no limit."""
    if 0 < bytes_max < bytes_of_files:
        raise InvalidRequestError(
            f"the query reads data files of {bytes_of_files:,} bytes: {QUERY_BYTES_MAX.name} "
            f"allows {bytes_max:,}; query fewer keys"
        )


def total_bytes(files: Iterable[DataFile]) -> int:
    """Returns the size of all files, each counted once."""
    return sum({file.path: file.bytes for file in files}.values())


T = TypeVar("T")


def group_in_key_order(
    schema: Schema, placed: Sequence[tuple[Region, T]], dimension: int = 0
) -> list[list[T]]:
    """Returns the items in groups: every key of a group precedes the keys of later groups.

    The regions of the items do not overlap, and agree in the fields before `dimension`.
    """
    if dimension == len(schema.row_keys):
        return [[each for _, each in placed]]
    groups: list[list[T]] = []
    for group in _group_overlapping(placed, dimension):
        if len(group) > 1 and _is_one_value(schema, [r for r, _ in group], dimension):
            groups += group_in_key_order(schema, group, dimension + 1)
        else:
            groups.append([each for _, each in group])
    return groups


def _group_overlapping(
    placed: Sequence[tuple[Region, T]], dimension: int
) -> list[list[tuple[Region, T]]]:
    """Groups items whose ranges of the field overlap, directly or through others; ascending."""
    groups: list[list[tuple[Region, T]]] = []
    end = None
    for region, each in sorted(placed, key=lambda p: [r.min for r in p[0].ranges[dimension:]]):
        within = region.ranges[dimension]
        if not groups or (end is not None and not precedes(within.min, end)):
            groups.append([])
            end = within.max
        elif end is not None and (within.max is None or precedes(end, within.max)):
            end = within.max
        groups[-1].append((region, each))
    return groups


def _is_one_value(schema: Schema, regions: Sequence[Region], dimension: int) -> bool:
    first = regions[0].ranges[dimension]
    point = Range(first.min, next_key_value(schema.row_keys[dimension], first.min))
    return point.max is not None and all(r.ranges[dimension] == point for r in regions)
