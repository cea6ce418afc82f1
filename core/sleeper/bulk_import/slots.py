"""Slots: balanced shares of the work of writing.

A slot is a range of the first row key field. Adjacent small leaves share a slot, a large leaf is
cut at the sample's quantiles, and the rows of a single very frequent key are distributed over
several tasks, unless the table shows only the latest of them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.bulk_import.splits import KeySample
from sleeper.datafiles.sidecars.sketches import distinct_inside, weighted_quantiles
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range
from sleeper.schema.model import KeyValue

# The excess over a slot's rows at which a range is cut or distributed.
_EXCESS = 1.5


@dataclass(frozen=True, slots=True)
class Slot:
    """A range of the first row key field, the leaves with its rows, and its tasks.

    The tasks are numbered from `first_task` on.
    """

    within: Range
    leaves: tuple[Partition, ...]
    first_task: int = 0
    tasks: int = 1

    def task_of(self, turn: int) -> int:
        """Returns the task for the rows of a chunk."""
        return self.first_task + turn % self.tasks


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A range within one set of leaves, and its estimated rows."""

    within: Range
    rows: float


def plan_slots(
    leaves: Sequence[Partition], sample: KeySample, slot_rows: float, distributes: bool = True
) -> list[Slot]:
    """Returns slots over all leaves, ascending, of about `slot_rows` rows each.

    `distributes` allows slots of several tasks.
    """
    first_keys = [key[0] for key, _ in sample.weighted]
    weights = [weight for _, weight in sample.weighted]
    stretches: list[_Stretch] = []
    for within in _ranges_between(leaves):
        start, stop = _places(first_keys, within)
        stretches += _cut(within, first_keys[start:stop], weights[start:stop], slot_rows)
    slots: list[Slot] = []
    ascending = sorted(leaves, key=lambda leaf: leaf.region.ranges[0].min)
    open_leaves: list[Partition] = []
    position = tasks = 0
    for stretch in _joined(stretches, slot_rows):
        while position < len(ascending) and _begins_before(ascending[position], stretch.within.max):
            open_leaves.append(ascending[position])
            position += 1
        open_leaves = [
            leaf for leaf in open_leaves if leaf.region.ranges[0].overlaps(stretch.within)
        ]
        is_frequent = distributes and stretch.rows > _EXCESS * slot_rows
        count = round(stretch.rows / slot_rows) if is_frequent else 1
        slots.append(Slot(stretch.within, tuple(open_leaves), tasks, count))
        tasks += count
    return slots


def slot_of_task(slots: Sequence[Slot], task: int) -> Slot:
    """Returns the slot of a task."""
    return slots[bisect_left(slots, task + 1, key=lambda slot: slot.first_task) - 1]


def task_count(slots: Sequence[Slot]) -> int:
    """Returns the number of writing tasks."""
    return slots[-1].first_task + slots[-1].tasks


def _ranges_between(leaves: Sequence[Partition]) -> list[Range]:
    """Returns the ranges of the first row key field between the starts of leaves."""
    starts = sorted({leaf.region.ranges[0].min for leaf in leaves})
    return [Range(low, high) for low, high in zip(starts, [*starts[1:], None], strict=True)]


def _places(keys: Sequence[KeyValue], within: Range) -> tuple[int, int]:
    start = bisect_left(keys, within.min)
    stop = len(keys) if within.max is None else bisect_left(keys, within.max)
    return start, stop


def _cut(
    within: Range, keys: Sequence[KeyValue], weights: Sequence[float], slot_rows: float
) -> list[_Stretch]:
    rows = sum(weights)
    if rows <= _EXCESS * slot_rows:
        return [_Stretch(within, rows)]
    parts = round(rows / slot_rows)
    quantiles = weighted_quantiles(
        zip(keys, weights, strict=True), [i / parts for i in range(1, parts)]
    )
    ends = [*distinct_inside(quantiles, within), within.max]
    stretches = []
    low = within.min
    for high in ends:
        part = Range(low, high)
        start, stop = _places(keys, part)
        stretches.append(_Stretch(part, sum(weights[start:stop])))
        if high is not None:
            low = high
    return stretches


def _joined(stretches: Sequence[_Stretch], slot_rows: float) -> list[_Stretch]:
    joined: list[_Stretch] = []
    for each in stretches:
        if joined and joined[-1].rows + each.rows <= slot_rows:
            last = joined[-1]
            joined[-1] = _Stretch(Range(last.within.min, each.within.max), last.rows + each.rows)
        else:
            joined.append(each)
    return joined


def _begins_before(leaf: Partition, end: KeyValue | None) -> bool:
    return end is None or leaf.region.ranges[0].min < end  # type: ignore[operator]
