"""Ranges and regions, half-open, and their sets."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import AsList
from sleeper.schema.model import (
    Field,
    Key,
    KeyValue,
    Schema,
    next_key_value,
    precedes,
    smallest_key_value,
)


@dataclass(frozen=True, slots=True)
class Range:
    """Values v of one key field with min <= v < max; max None means no upper end."""

    min: KeyValue
    max: KeyValue | None

    def contains(self, value: KeyValue) -> bool:
        return not precedes(value, self.min) and (self.max is None or precedes(value, self.max))

    def overlaps(self, other: "Range") -> bool:
        return (other.max is None or precedes(self.min, other.max)) and (
            self.max is None or precedes(other.min, self.max)
        )

    def overlaps_values(self, smallest: KeyValue, largest: KeyValue) -> bool:
        """Returns whether any value from smallest to largest, both included, is in the range."""
        return not precedes(largest, self.min) and (
            self.max is None or precedes(smallest, self.max)
        )

    def contains_values(self, smallest: KeyValue, largest: KeyValue) -> bool:
        """Returns whether every value from smallest to largest, both included, is in the range."""
        return self.contains(smallest) and self.contains(largest)

    def intersect(self, other: "Range") -> "Range | None":
        """Returns the intersection, or None if it is empty."""
        low = other.min if precedes(self.min, other.min) else self.min
        if self.max is None or (other.max is not None and precedes(other.max, self.max)):
            high = other.max
        else:
            high = self.max
        return Range(low, high) if high is None or precedes(low, high) else None


@dataclass(frozen=True, slots=True)
class Region:
    """One range per row key field, in schema order."""

    ranges: tuple[Annotated[Range, AsList], ...]

    def contains(self, key: Key) -> bool:
        return all(r.contains(v) for r, v in zip(self.ranges, key, strict=True))

    def overlaps(self, other: "Region") -> bool:
        return all(a.overlaps(b) for a, b in zip(self.ranges, other.ranges, strict=True))

    def overlaps_bounds(self, smallest: Key, largest: Key) -> bool:
        """Returns whether a file with these per-field bounds may hold rows of the region."""
        return all(
            r.overlaps_values(a, b) for r, a, b in zip(self.ranges, smallest, largest, strict=True)
        )

    def contains_bounds(self, smallest: Key, largest: Key) -> bool:
        """Returns whether every row of a file with these per-field bounds is in the region."""
        return all(
            r.contains_values(a, b) for r, a, b in zip(self.ranges, smallest, largest, strict=True)
        )

    def intersect(self, other: "Region") -> "Region | None":
        """Returns the intersection, or None if it is empty."""
        ranges = []
        for a, b in zip(self.ranges, other.ranges, strict=True):
            both = a.intersect(b)
            if both is None:
                return None
            ranges.append(both)
        return Region(tuple(ranges))


def hull(regions: Sequence[Region]) -> Region:
    """Returns the smallest region that contains all the regions."""
    ranges = []
    for field_ranges in zip(*(region.ranges for region in regions), strict=True):
        ends: list[Any] = [r.max for r in field_ranges if r.max is not None]
        mins: list[Any] = [r.min for r in field_ranges]
        ranges.append(Range(min(mins), max(ends) if len(ends) == len(field_ranges) else None))
    return Region(tuple(ranges))


def whole_region(schema: Schema) -> Region:
    """Returns the region of every key that the schema allows."""
    return Region(tuple(Range(smallest_key_value(f), None) for f in schema.row_keys))


def key_region(schema: Schema, key: Sequence[KeyValue]) -> Region:
    """Returns the region of exactly one whole row key."""
    if len(key) != len(schema.row_keys):
        names = ", ".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"key {key!r} has {len(key)} values (expected one per row key field: {names})"
        )
    return Region(
        tuple(Range(v, next_key_value(f, v)) for f, v in zip(schema.row_keys, key, strict=True))
    )


def key_of_region(schema: Schema, region: Region) -> Key | None:
    """Returns the row key of a region of exactly one key, else None."""
    pairs = zip(schema.row_keys, region.ranges, strict=True)
    if all(holds_one_value(field, within) for field, within in pairs):
        return tuple(r.min for r in region.ranges)
    return None


def holds_one_value(field: Field, within: Range) -> bool:
    """Returns whether the range of the field holds exactly its smallest value."""
    return next_key_value(field, within.min) == within.max


def are_one_region(before: Region, after: Region) -> bool:
    """Returns whether the hull of a region and a later one has no rows of other leaves between."""
    pairs = list(zip(before.ranges, after.ranges, strict=True))
    different = [(low, high) for low, high in pairs if low != high]
    if len(different) != 1:
        return False
    ((low, high),) = different
    # With one field, a gap has no rows to read, because no leaf of the plan is in between.
    return len(pairs) == 1 or low.max == high.min


def disjoint_regions(regions: Iterable[Region]) -> list[Region]:
    """Returns the same keys in ascending regions; overlapping ranges of one field are joined."""
    ascending = sorted(set(regions), key=smallest_key)
    if not ascending or len(ascending[0].ranges) > 1:
        return ascending
    joined: list[Range] = []
    for (within,) in (r.ranges for r in ascending):
        last = joined[-1] if joined else None
        # Adjacent ranges stay separate, because single keys prune best.
        if last is None or (last.max is not None and not precedes(within.min, last.max)):
            joined.append(within)
        elif last.max is not None and (within.max is None or precedes(last.max, within.max)):
            joined[-1] = Range(last.min, within.max)
    return [Region((r,)) for r in joined]


def join_regions(regions: Iterable[Region]) -> list[Region]:
    """Returns the same keys in fewer regions: adjacent regions of one field are joined."""
    return join_ascending(sorted(regions, key=smallest_key))


def join_ascending(regions: Sequence[Region]) -> list[Region]:
    """Returns `join_regions` of regions in ascending order of their smallest keys."""
    if not regions or len(regions[0].ranges) > 1:
        return list(regions)
    joined: list[Region] = []
    first = last = regions[0]
    for region in regions[1:]:
        if last.ranges[0].max != region.ranges[0].min:
            joined.append(_joined(first, last))
            first = region
        last = region
    return [*joined, _joined(first, last)]


def _joined(first: Region, last: Region) -> Region:
    return first if first is last else Region((Range(first.ranges[0].min, last.ranges[0].max),))


def smallest_key(region: Region) -> Key:
    """Returns the smallest key of the region."""
    return tuple(within.min for within in region.ranges)


def covers(regions: Sequence[Region], box: Region) -> bool:
    """Returns whether the regions, in ascending order, together contain all of the box."""
    if len(box.ranges) == 1:
        return _covers_range([region.ranges[0] for region in regions], box.ranges[0])
    left = [(box, regions)]
    while left:
        piece, candidates = left.pop()
        near = [region for region in candidates if region.overlaps(piece)]
        if not near:
            return False
        # Half of the others lie on either side of it, mostly.
        middle = near.pop(len(near) // 2)
        left += [(each, near) for each in subtract_region(piece, middle)]
    return True


def _covers_range(ranges: Sequence[Range], within: Range) -> bool:
    start = bisect_right(ranges, within.min, key=_smallest) - 1
    reached: KeyValue = within.min
    for each in ranges[max(start, 0) :]:
        if not each.contains(reached):
            return False
        if each.max is None or (within.max is not None and not precedes(each.max, within.max)):
            return True
        reached = each.max
    return False


def _smallest(within: Range) -> Any:
    return within.min


def subtract_region(whole: Region, region: Region) -> list[Region]:
    """Returns the parts of a region outside another."""
    both = whole.intersect(region)
    if both is None:
        return [whole]
    pieces = []
    ranges = list(whole.ranges)
    for index, (outer, inner) in enumerate(zip(whole.ranges, both.ranges, strict=True)):
        before, after = ranges[:index], ranges[index + 1 :]
        if precedes(outer.min, inner.min):
            pieces.append(Region((*before, Range(outer.min, inner.min), *after)))
        if inner.max is not None and inner.max != outer.max:
            pieces.append(Region((*before, Range(inner.max, outer.max), *after)))
        ranges[index] = inner
    return pieces


def subtract_regions(
    regions: Sequence[Region], others: Iterable[Region], pieces_max: int
) -> list[Region] | None:
    """Returns the regions without the others; None if more than `pieces_max` pieces result."""
    left = list(regions)
    for other in others:
        left = [piece for region in left for piece in subtract_region(region, other)]
        if len(left) > pieces_max:
            return None
    return left
