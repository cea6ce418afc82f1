"""The newest version of each table in memory, so that a lookup reads one number from the state.

A version never changes. What a query has read of it, its schema and the files and deletes of the
leaves that contain the keys, remains valid while no transaction follows.
"""

import threading
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sleeper.errors import StateMovedOnError
from sleeper.files import DataFile
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Region
from sleeper.query.leaf_source import StateLeaves
from sleeper.query.plan import QueryPlan, check_has_rows, describe_version
from sleeper.schema.model import precedes
from sleeper.statestore.reading.delete_queries import Delete
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore

_LAYERS_MAX = 16


@dataclass(frozen=True, slots=True)
class _Layer:
    """Deletes whose ranges of the first field ascend without overlap, and these ranges' ends.

    The last one's range may have no end.
    """

    deletes: list[Delete] = field(default_factory=list)
    mins: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)

    def add(self, delete: Delete) -> bool:
        """Adds a delete that begins after all others, and returns whether it overlaps none."""
        within = delete.region.ranges[0]
        if len(self.ends) < len(self.deletes):
            return False
        if self.ends and precedes(within.min, self.ends[-1]):
            return False
        self.deletes.append(delete)
        self.mins.append(within.min)
        if within.max is not None:
            self.ends.append(within.max)
        return True

    def near(self, region: Region) -> list[Delete]:
        """Returns the deletes whose ranges of the first field overlap the region's."""
        within = region.ranges[0]
        start = bisect_right(self.ends, within.min)
        stop = len(self.mins) if within.max is None else bisect_left(self.mins, within.max)
        return self.deletes[start:stop]


class CachedDeletes:
    """Deletes of a leaf, in layers that a binary search covers.

    Many deletes that overlap each other are compared one by one.
    """

    def __init__(self, deletes: Sequence[Delete]) -> None:
        self._layers: list[_Layer] = []
        self._others: list[Delete] = []
        self._places = {id(each): index for index, each in enumerate(deletes)}
        for delete in sorted(deletes, key=_first_min):
            self._add(delete)

    def __len__(self) -> int:
        return len(self._places)

    def overlapping(self, region: Region) -> list[Delete]:
        """Returns the deletes that overlap the region, in the order in which they were given."""
        matches = [each for each in self._others if each.region.overlaps(region)]
        for layer in self._layers:
            matches += [each for each in layer.near(region) if each.region.overlaps(region)]
        return sorted(matches, key=self._place) if len(matches) > 1 else matches

    def _add(self, delete: Delete) -> None:
        for layer in self._layers:
            if layer.add(delete):
                return
        if len(self._layers) == _LAYERS_MAX:
            self._others.append(delete)
            return
        self._layers.append(_Layer())
        self._layers[-1].add(delete)

    def _place(self, delete: Delete) -> int:
        return self._places[id(delete)]


def _first_min(delete: Delete) -> Any:
    return delete.region.ranges[0].min


# A file or a delete takes up to a kilobyte.
_FILES_MAX = 50_000
# To read more files of a leaf takes longer than to find those of a few keys.
_FILES_AT_ONCE_MAX = 2_000
_LOOKUPS_BEFORE_MANY_FILES = 16
# To read more deletes takes longer than to find those of a few keys, by a loop over all of them.
_DELETES_AT_ONCE_MAX = 5_000
# Leaves whose first field begins below a key, of which at most one contains the key: more than one
# only if leaves were cut on a later field.
_LEAVES_TO_TRY = 16


@dataclass(frozen=True, slots=True)
class CachedLeaf:
    """A leaf with all files that may hold its rows, and its deletes; `None` if they are many."""

    leaf: Partition
    files: tuple[DataFile, ...]
    deletes: CachedDeletes | None


class CachedVersion:
    """Implements `LeafSource` for a version, while it is the newest. Safe for threads.

    `plan` describes the version and reads no leaf. The first query reads the files near its keys
    from the state, as each would if every version had one query. Later ones, for which `is_used` is
    set, read each leaf once; a leaf of many files after several lookups. Methods raise
    `StateMovedOnError` if the version is no longer the newest.
    """

    def __init__(
        self,
        store: StateStore,
        plan: QueryPlan,
        reserve: Callable[[int], bool],
        files_max: int = _FILES_MAX,
    ) -> None:
        self.plan = plan
        self.is_used = False
        self._store = store
        self._reserve = reserve
        self._files_max = files_max
        self._lock = threading.Lock()
        # Ascending by the first field. Replaced as a whole, so readers need no lock.
        self._ascending: tuple[list[Any], list[CachedLeaf]] = ([], [])
        self._by_id: dict[PartitionId, CachedLeaf] = {}
        # Leaves of many files, and how often each was looked for.
        self._large: dict[PartitionId, int] = {}

    def leaf_of(self, region: Region) -> CachedLeaf | None:
        """Returns the leaf that contains the region; `None` if no single leaf does."""
        return self._find(region) or (self._load(region) if self.is_used else None)

    def leaves_overlapping(self, region: Region) -> Sequence[Partition]:
        """See the protocol."""
        cached = self.leaf_of(region)
        if cached is not None:
            return [cached.leaf]
        with self._store.reading(stale=True) as state:
            self._check_is_newest(state.version)
            return StateLeaves(state).leaves_overlapping(region)

    def leaf_files(self, leaf_id: PartitionId, within: Region) -> Sequence[DataFile]:
        """See the protocol."""
        cached = self._by_id.get(leaf_id)
        if cached is not None:
            return cached.files
        with self._store.reading(stale=True) as state:
            self._check_is_newest(state.version)
            return StateLeaves(state).leaf_files(leaf_id, within)

    def deletes(self, leaf_id: PartitionId, within: Region) -> Sequence[Delete]:
        """See the protocol."""
        cached = self._by_id.get(leaf_id)
        if cached is not None and cached.deletes is not None:
            return cached.deletes.overlapping(within)
        with self._store.reading(stale=True) as state:
            self._check_is_newest(state.version)
            return StateLeaves(state).deletes(leaf_id, within)

    def _find(self, region: Region) -> CachedLeaf | None:
        mins, leaves = self._ascending
        stop = bisect_right(mins, region.ranges[0].min)
        for position in range(stop - 1, max(stop - 1 - _LEAVES_TO_TRY, -1), -1):
            cached = leaves[position]
            if cached.leaf.region.intersect(region) == region:
                return cached
            if len(region.ranges) == 1:
                break
        return None

    def _load(self, region: Region) -> CachedLeaf | None:
        with self._store.reading(stale=True) as state:
            self._check_is_newest(state.version)
            source = StateLeaves(state)
            overlapping = source.leaves_overlapping(region)
            if len(overlapping) != 1:
                return None
            (leaf,) = overlapping
            if not self._is_worth_reading(state, leaf.id):
                return None
            files = source.leaf_files(leaf.id, leaf.region)
            deletes = None
            if state.deletes.count() <= _DELETES_AT_ONCE_MAX:
                deletes = CachedDeletes(source.deletes(leaf.id, leaf.region))
        cached = CachedLeaf(leaf, tuple(files), deletes)
        if self._reserve(len(cached.files) + len(deletes or ())):
            self._add(cached)
        return cached

    def _is_worth_reading(self, state: TableState, leaf_id: PartitionId) -> bool:
        result = self._large.get(leaf_id)
        if result is None:
            limit = _FILES_AT_ONCE_MAX + 1
            if state.files.count_leaf_files(leaf_id, limit) < limit:
                return True
            result = 0
        self._large[leaf_id] = result + 1
        if result + 1 != _LOOKUPS_BEFORE_MANY_FILES:
            return False
        return state.files.count_leaf_files(leaf_id, self._files_max + 1) <= self._files_max

    def _add(self, cached: CachedLeaf) -> None:
        with self._lock:
            if cached.leaf.id in self._by_id:
                return
            self._by_id[cached.leaf.id] = cached
            mins, leaves = self._ascending
            first = cached.leaf.region.ranges[0].min
            position = bisect_right(mins, first)
            self._ascending = (
                [*mins[:position], first, *mins[position:]],
                [*leaves[:position], cached, *leaves[position:]],
            )

    def _check_is_newest(self, version: int) -> None:
        if version != self.plan.version:
            raise StateMovedOnError(
                f"version {self.plan.version} was planned, and the newest is {version}"
            )


class NewestVersions:
    """The newest versions of the tables that a process queries. Safe for threads."""

    def __init__(self, files_max: int = _FILES_MAX) -> None:
        self._files_max = files_max
        self._files = 0
        self._lock = threading.Lock()
        self._by_store: weakref.WeakKeyDictionary[StateStore, CachedVersion] = (
            weakref.WeakKeyDictionary()
        )

    def get(self, name: str, store: StateStore) -> CachedVersion:
        """Returns the newest version of the table of that name and store.

        It includes every transaction that was committed before the call. InvalidRequestError if a
        snapshot table has no rows to read.
        """
        number = store.newest_number()
        cached = self._by_store.get(store)
        if cached is not None and cached.plan.version == number:
            cached.is_used = True
            return cached
        with store.reading(stale=True) as state:
            check_has_rows(name, state)
            plan = describe_version(state.schema, state)
        cached = CachedVersion(store, plan, self._reserve, self._files_max)
        with self._lock:
            self._by_store[store] = cached
        return cached

    def _reserve(self, files: int) -> bool:
        """Counts the files and deletes of a leaf. Returns whether they may be kept.

        If there is no room, all versions are forgotten.
        """
        with self._lock:
            self._files += files
            if self._files <= self._files_max:
                return True
            self._files = 0
            self._by_store.clear()
            return False
