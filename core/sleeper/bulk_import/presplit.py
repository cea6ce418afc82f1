"""Splits the tree of a table that has too few leaves, by the keys that are about to come.

Each leaf is split in one transaction that is refused if it is a leaf no more. So imports and
splits that race leave a sound tree, whoever wins; the loser reads it and goes on from there.
"""

import logging
import math
from bisect import bisect_right
from collections.abc import Sequence

from sleeper.bulk_import.key_sample import KeySample
from sleeper.datafiles.sketches import distinct_inside, weighted_quantiles
from sleeper.partitions.partition import Partition
from sleeper.partitions.subtree import MOST_LEVELS, subtree
from sleeper.schema.model import Key
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.split_partition import SplitPartition

logger = logging.getLogger(__name__)

# Fewer rows do not pay for a file of their own.
_ROWS_PER_LEAF_MIN = 1_000
# A leaf is cut into 256 at once; another round cuts those again.
_ROUNDS_MAX = 3
_PARTS_MAX = 2**MOST_LEVELS

WeightedKeys = list[tuple[Key, float]]


def presplit(state: StateStore, sample: KeySample, leaves_min: int) -> list[Partition]:
    """The table's leaves, of which there are so many now if the sample has keys to cut at."""
    wanted = min(leaves_min, sample.rows // _ROWS_PER_LEAF_MIN)
    for _ in range(_ROUNDS_MAX):
        leaves = read_leaves(state)
        if len(leaves) >= wanted:
            return leaves
        splits = plan_presplit(leaves, sample, wanted)
        if not splits:
            return leaves
        outcomes = state.commit(*splits)
        done = sum(not outcome.refused for outcome in outcomes)
        logger.info("split %d of %d leaves before a bulk import", done, len(leaves))
    return read_leaves(state)


def read_leaves(state: StateStore) -> list[Partition]:
    """The table's leaves as they are now."""
    with state.reading() as now:
        return list(now.partitions.leaves())


def plan_presplit(
    leaves: Sequence[Partition], sample: KeySample, wanted: int
) -> list[SplitPartition]:
    """Splits after which there are about so many leaves, of like many of the sample's rows."""
    by_leaf = _keys_by_leaf(leaves, sample)
    rows = sum(weight for _, weight in sample.weighted)
    splits = []
    for leaf, keys in zip(leaves, by_leaf, strict=True):
        share = sum(weight for _, weight in keys) / rows if rows else 0.0
        parts = min(math.ceil(share * wanted), _PARTS_MAX)
        descendants = _cut(leaf, keys, parts) if parts > 1 else []
        if descendants:
            splits.append(SplitPartition(leaf.id, tuple(descendants)))
    return splits


def _cut(leaf: Partition, keys: WeightedKeys, parts: int) -> list[Partition]:
    """The partitions below the leaf, cut on the first field that has values to cut at."""
    ranks = [i / parts for i in range(1, parts)]
    for dimension, within in enumerate(leaf.region.ranges):
        points = [(key[dimension], weight) for key, weight in keys]
        lowest = min(value for value, _ in points)
        # A cut at the lowest key there is would leave nothing below it.
        quantiles = [q for q in weighted_quantiles(points, ranks) if q != lowest]
        cuts = distinct_inside(quantiles, within)
        if cuts:
            return subtree(leaf, dimension, cuts)
    return []


def _keys_by_leaf(leaves: Sequence[Partition], sample: KeySample) -> list[WeightedKeys]:
    """The sample's keys of each leaf. Those of a leaf ascend in the first field."""
    found: list[WeightedKeys] = [[] for _ in leaves]
    # Leaves that begin alike in the first field stand together, in the order of their ends.
    order = sorted(range(len(leaves)), key=lambda place: leaves[place].region.ranges[0].min)
    starts = [leaves[place].region.ranges[0].min for place in order]
    for key, weight in sample.weighted:
        at = bisect_right(starts, key[0]) - 1
        # Of leaves cut on a later field the one that holds the key may begin further down.
        while not leaves[order[at]].region.contains(key):
            at -= 1
        found[order[at]].append((key, weight))
    return found
