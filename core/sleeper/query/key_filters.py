"""Key filters of data files: a cache, and the removal of keys that they exclude from a plan."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import numpy.typing as npt

from sleeper.datafiles.sidecars.key_filter import (
    HashedKeys,
    KeyFilter,
    hash_key,
    hashed_key,
    hashed_keys,
    key_filter_from_bytes,
)
from sleeper.errors import DataError, NotFoundError, UnavailableError
from sleeper.files import FILTER_SUFFIX, DataFile
from sleeper.partitions.key_regions import KeyRegions
from sleeper.partitions.region import Region, key_of_region
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.plan import QueryPlan
from sleeper.schema.model import Key, KeyValue, Schema
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

# The size of a cache entry besides the filter's blocks.
_ENTRY_BYTES = 500
_PARALLEL_READS = 8
_LEAVES_PER_LOAD = 16

GetFilter = Callable[[DataFile], KeyFilter | None]
"""Returns the key filter of a file, or `None` for a file that may contain any key."""


class KeyFilterCache:
    """A cache of the most recently used filters, of limited size. Safe for threads.

    A missing or damaged filter has an entry too, so that it is logged once; its file may contain
    any key.
    """

    def __init__(self, bytes_max: int) -> None:
        self._entries = BoundedCache[KeyFilter | None](bytes_max, _entry_bytes)
        self._threads = ThreadPoolExecutor(_PARALLEL_READS, "key-filters")

    @property
    def bytes(self) -> int:
        """The size of the entries."""
        return self._entries.bytes

    def get(self, root: DataRoot, file: DataFile) -> KeyFilter | None:
        """Returns the filter of a file, which is read if it is not cached."""
        if FILTER_SUFFIX not in file.sidecars:
            return None
        try:
            return self._entries.get(
                _name(root, file), lambda: _read(root, file.path + FILTER_SUFFIX)
            )
        except UnavailableError as error:
            logger.warning("lookups continue without a key filter: %s", error)
            return None

    def load(self, root: DataRoot, files: Sequence[DataFile]) -> None:
        """Reads filters in buckets in parallel, before they are needed one by one."""
        if not root.buckets:
            return
        missing = [file for file in files if _name(root, file) not in self._entries]
        if len(missing) > 1:
            for _ in self._threads.map(lambda file: self.get(root, file), missing):
                pass


def _name(root: DataRoot, file: DataFile) -> tuple[str, str]:
    return root.url_of(""), file.path


LoadFilters = Callable[[Sequence[DataFile]], None]
"""Prefetches the filters of files."""


def prune_plan(
    plan: QueryPlan, get_filter: GetFilter, load: LoadFilters = lambda _: None
) -> QueryPlan:
    """Returns the plan without the keys, and so the files and leaves, that filters exclude."""
    hashes = _RegionHashes(plan.schema)
    leaves = []
    for index, leaf in enumerate(plan.leaves):
        if index % _LEAVES_PER_LOAD == 0:
            next_leaves = plan.leaves[index : index + _LEAVES_PER_LOAD]
            load([s.file for each in next_leaves for s in each.scans if hashes.has_keys(s)])
        scans = tuple(s for each in leaf.scans for s in _prune_scan(each, hashes, get_filter))
        if scans:
            leaves.append(LeafPlan(leaf.leaf_ids, scans))
    return replace(plan, leaves=tuple(leaves))


def prune_key(
    schema: Schema,
    key: Key,
    plan: LeafPlan,
    get_filter: GetFilter,
    load: LoadFilters = lambda _: None,
) -> LeafPlan:
    """Returns the plan of one key of a leaf without the files that their filters exclude."""
    try:
        hashed = hashed_key(schema, key)
    except UnicodeEncodeError:
        return plan
    load([scan.file for scan in plan.scans])
    scans = []
    for scan in plan.scans:
        key_filter = get_filter(scan.file)
        if key_filter is None or key_filter.may_hold_key(hashed):
            scans.append(scan)
    return LeafPlan(plan.leaf_ids, tuple(scans))


@dataclass(frozen=True, slots=True)
class _RegionKeys:
    """The regions of a scan that are single keys, and these keys."""

    are_keys: npt.NDArray[np.bool_]
    hashed: HashedKeys


class _RegionHashes:
    """A cache of key hashes by region. The files of a leaf share their regions."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        # Each entry keeps its regions alive, so that no other object gets their id.
        self._by_region: dict[int, tuple[Region, tuple[Key, int] | None]] = {}
        self._by_regions: dict[int, tuple[Sequence[Region], _RegionKeys]] = {}

    def hash_keys(self, regions: Sequence[Region]) -> _RegionKeys:
        """Returns the hashes of the regions that are single keys."""
        cached = self._by_regions.get(id(regions))
        if cached is None and isinstance(regions, KeyRegions):
            cached = self._by_regions[id(regions)] = (regions, self._slice_keys(regions))
        elif cached is None:
            hashed = [self._hash_once(region) for region in regions]
            are_keys = np.array([each is not None for each in hashed], np.bool_)
            keys = [each[0] for each in hashed if each is not None]
            hashes = np.array([each[1] for each in hashed if each is not None], np.uint64)
            entry = _RegionKeys(are_keys, HashedKeys(self._schema, keys, hashes))
            cached = self._by_regions[id(regions)] = (regions, entry)
        return cached[1]

    def _slice_keys(self, keys: KeyRegions) -> _RegionKeys:
        whole = keys.whole
        if id(whole) not in self._by_regions:
            self._by_regions[id(whole)] = (whole, _hash_all(self._schema, whole.values))
        cached = self._by_regions[id(whole)][1]
        within = slice(keys.position, keys.position + len(keys))
        return _RegionKeys(cached.are_keys[within], cached.hashed.slice(within))

    def has_keys(self, scan: FileScan) -> bool:
        """Returns whether any region of the scan is a single key."""
        return len(self.hash_keys(scan.regions or ()).hashed.keys) > 0

    def _hash_once(self, region: Region) -> tuple[Key, int] | None:
        cached = self._by_region.get(id(region))
        if cached is None:
            cached = self._by_region[id(region)] = (region, self._hash(region))
        return cached[1]

    def _hash(self, region: Region) -> tuple[Key, int] | None:
        key = key_of_region(self._schema, region)
        try:
            return None if key is None else (key, hash_key(self._schema, key))
        except UnicodeEncodeError:
            return None


def _hash_all(schema: Schema, values: Sequence[KeyValue]) -> _RegionKeys:
    keys = [(value,) for value in values]
    return _RegionKeys(np.ones(len(keys), np.bool_), hashed_keys(schema, keys))


def _prune_scan(
    scan: FileScan, hashes: _RegionHashes, get_filter: GetFilter
) -> tuple[FileScan, ...]:
    """Returns the scan without excluded keys, or nothing if none remains."""
    regions = scan.regions or ()
    keys = hashes.hash_keys(regions)
    key_filter = get_filter(scan.file) if keys.hashed.keys else None
    if key_filter is None:
        return (scan,)
    may_hold = np.ones(len(regions), np.bool_)
    may_hold[keys.are_keys] = key_filter.may_hold(keys.hashed)
    selectors = may_hold.tolist()
    kept: Sequence[Region] = (
        regions.keep(selectors)
        if isinstance(regions, KeyRegions)
        else tuple(compress(regions, selectors))
    )
    return (replace(scan, regions=kept),) if kept else ()


def _read(root: DataRoot, path: str) -> KeyFilter | None:
    try:
        return key_filter_from_bytes(root.map(path), path)
    except (NotFoundError, DataError) as error:
        logger.warning("lookups continue without a key filter: %s", error)
        return None


def _entry_bytes(kept: KeyFilter | None) -> int:
    return _ENTRY_BYTES + (kept.size_bytes if kept is not None else 0)
