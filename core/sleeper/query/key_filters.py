"""Key filters of data files: kept in memory, and asked before a lookup opens a file."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import numpy.typing as npt

from sleeper.datafiles.sidecars.key_filter import (
    Hashes,
    KeyFilter,
    hash_of_key,
    key_filter_from_bytes,
)
from sleeper.errors import DataError, NotFoundError, UnavailableError
from sleeper.files.data_file import FILTER_SUFFIX, DataFile
from sleeper.partitions.region import Region, key_of_region
from sleeper.query.plan import FileScan, LeafPlan, QueryPlan
from sleeper.schema.model import Schema
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

# What an entry takes besides the filter's blocks, and all that one without a filter takes.
_ENTRY_BYTES = 500
_READS_AT_ONCE = 8
_LEAVES_LOADED = 16

FilterOf = Callable[[DataFile], KeyFilter | None]
"""The file's key filter; None if it has none, so that it may hold any key."""


class KeyFilterCache:
    """The filters that were used last, up to so many bytes. Safe for threads.

    A filter that is missing or damaged is kept as such, so that it is warned of once; its
    file may hold any key.
    """

    def __init__(self, bytes_max: int) -> None:
        self._kept = BoundedCache[KeyFilter | None](bytes_max, _bytes_of)
        self._threads = ThreadPoolExecutor(_READS_AT_ONCE, "key-filters")

    @property
    def bytes(self) -> int:
        """What is kept now."""
        return self._kept.bytes

    def get(self, root: DataRoot, file: DataFile) -> KeyFilter | None:
        """The file's filter, read if it is not kept."""
        if FILTER_SUFFIX not in file.sidecars:
            return None
        name = root.url_of(file.path)
        try:
            return self._kept.get(name, lambda: _read(root, file.path + FILTER_SUFFIX))
        except UnavailableError as error:
            logger.warning("lookups go on without a key filter: %s", error)
            return None

    def load(self, root: DataRoot, files: Sequence[DataFile]) -> None:
        """Reads those that are not kept, some at a time. Local ones need no such head start."""
        if root.buckets and len(files) > 1:
            for _ in self._threads.map(lambda file: self.get(root, file), files):
                pass


LoadFilters = Callable[[Sequence[DataFile]], None]
"""Hears of files whose filters will be asked for next."""


def prune_plan(
    plan: QueryPlan, filter_of: FilterOf, load: LoadFilters = lambda _: None
) -> QueryPlan:
    """The plan without the keys, and so without the files and leaves, that filters deny."""
    hashes = _RegionHashes(plan.schema)
    leaves = []
    for place, leaf in enumerate(plan.leaves):
        if place % _LEAVES_LOADED == 0:
            next_leaves = plan.leaves[place : place + _LEAVES_LOADED]
            load([s.file for each in next_leaves for s in each.scans if hashes.are_any_of(s)])
        scans = tuple(s for each in leaf.scans for s in _narrowed(each, hashes, filter_of))
        if scans:
            leaves.append(LeafPlan(leaf.leaf_ids, scans))
    return replace(plan, leaves=tuple(leaves))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which regions of a scan are single keys, and the hashes of these."""

    are_keys: npt.NDArray[np.bool_]
    hashes: Hashes


class _RegionHashes:
    """The hashes of regions that are single keys. The files of a leaf share their regions."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        # With what they are of, so that nothing else takes its identity.
        self._of_region: dict[int, tuple[Region, int | None]] = {}
        self._of_regions: dict[int, tuple[Sequence[Region], _Asked]] = {}

    def of(self, regions: Sequence[Region]) -> _Asked:
        """The hashes of those of the regions that are single keys."""
        known = self._of_regions.get(id(regions))
        if known is None:
            hashes = [self._of(region) for region in regions]
            are_keys = np.array([h is not None for h in hashes], np.bool_)
            asked = _Asked(are_keys, np.array([h for h in hashes if h is not None], np.uint64))
            known = self._of_regions[id(regions)] = (regions, asked)
        return known[1]

    def are_any_of(self, scan: FileScan) -> bool:
        """Whether any of the scan's regions is one key."""
        return len(self.of(scan.regions or ()).hashes) > 0

    def _of(self, region: Region) -> int | None:
        known = self._of_region.get(id(region))
        if known is None:
            known = self._of_region[id(region)] = (region, self._hash(region))
        return known[1]

    def _hash(self, region: Region) -> int | None:
        key = key_of_region(self._schema, region)
        try:
            return None if key is None else hash_of_key(self._schema, key)
        except UnicodeEncodeError:
            return None


def _narrowed(scan: FileScan, hashes: _RegionHashes, filter_of: FilterOf) -> tuple[FileScan, ...]:
    """The scan of what the file may hold: none or one."""
    regions = scan.regions or ()
    asked = hashes.of(regions)
    key_filter = filter_of(scan.file) if len(asked.hashes) else None
    if key_filter is None:
        return (scan,)
    may_hold = np.ones(len(regions), np.bool_)
    may_hold[asked.are_keys] = key_filter.may_hold(asked.hashes)
    kept = tuple(compress(regions, may_hold.tolist()))
    return (FileScan(scan.file, kept),) if kept else ()


def _read(root: DataRoot, path: str) -> KeyFilter | None:
    try:
        return key_filter_from_bytes(root.read(path), path)
    except (NotFoundError, DataError) as error:
        logger.warning("lookups go on without a key filter: %s", error)
        return None


def _bytes_of(kept: KeyFilter | None) -> int:
    return _ENTRY_BYTES + (kept.blocks.nbytes if kept is not None else 0)
