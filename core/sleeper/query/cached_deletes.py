"""The deletes of a leaf in memory, found by key in logarithmic time."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sleeper.partitions.region import Region
from sleeper.schema.model import precedes
from sleeper.statestore.reading.delete_queries import Delete

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
