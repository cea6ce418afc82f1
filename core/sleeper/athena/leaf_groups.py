"""Small leaves side by side as one split, so that a table of many of them is not as many reads."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sleeper.athena.connector import ConnectorSettings
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Leaves whose rows that are wanted are those of the region; `place` is the first one's."""

    place: int
    first: Partition
    region: Region
    bytes: int
    leaves: int = 1


def leaf_groups(
    leaves: Iterable[tuple[int, Partition, int]], settings: ConnectorSettings
) -> Iterator[LeafGroup]:
    """Leaves with their places and bytes, in key order, in as few groups as the settings allow.

    A leaf that is larger than a split is alone. The region may have leaves between those of
    the group, if nothing is wanted of them.
    """
    group: LeafGroup | None = None
    for place, leaf, size in leaves:
        joined = None if group is None else _joined(group, leaf, size, settings)
        if joined is None:
            if group is not None:
                yield group
            joined = LeafGroup(place, leaf, leaf.region, size)
        group = joined
    if group is not None:
        yield group


def _joined(
    group: LeafGroup, leaf: Partition, size: int, settings: ConnectorSettings
) -> LeafGroup | None:
    """None if they do not make one split."""
    whole = group.bytes + size
    if whole > settings.split_bytes or group.leaves >= settings.leaves_per_split:
        return None
    region = _around(group.region, leaf.region)
    if region is None:
        return None
    return LeafGroup(group.place, group.first, region, whole, group.leaves + 1)


def _around(before: Region, after: Region) -> Region | None:
    """A region of both and nothing else that is wanted, if there is one."""
    pairs = list(zip(before.ranges, after.ranges, strict=True))
    apart = [place for place, (low, high) in enumerate(pairs) if low != high]
    if len(apart) != 1:
        return None
    (place,) = apart
    low, high = pairs[place]
    # Of one field, what lies between has no rows that are wanted, or it would have come.
    if len(pairs) > 1 and low.max != high.min:
        return None
    ranges = list(before.ranges)
    ranges[place] = Range(low.min, high.max)
    return Region(tuple(ranges))
