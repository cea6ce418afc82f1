"""Slots cover every key and are balanced."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sleeper.bulk_import.slots import plan_slots, slot_of_task, task_count
from sleeper.bulk_import.splits import KeySample
from sleeper.partitions.partition import (
    ROOT_PARTITION_ID,
    Partition,
    PartitionId,
    split_region,
    tree_from_split_points,
)
from sleeper.partitions.region import whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema((Field("k", PrimitiveType.LONG),))
TWO_KEYS = Schema((Field("a", PrimitiveType.LONG), Field("b", PrimitiveType.LONG)))


def make_leaves(*points: int) -> list[Partition]:
    return [p for p in tree_from_split_points(SCHEMA, points) if p.is_leaf]


def make_sample(*keys: int, weight: float = 1.0) -> KeySample:
    weighted = tuple(((key,), weight) for key in sorted(keys))
    return KeySample(round(len(keys) * weight), 8 * len(keys), weighted)


@given(
    st.sets(st.integers(-20, 20), max_size=10),
    st.lists(st.integers(-30, 30), max_size=60),
    st.floats(1, 40),
    st.integers(-40, 40),
)
def test_each_key_has_one_slot_with_its_leaf(
    points: set[int], keys: list[int], slot_rows: float, key: int
) -> None:
    leaves = make_leaves(*sorted(points))
    slots = plan_slots(leaves, make_sample(*keys), slot_rows)
    (slot,) = [slot for slot in slots if slot.within.contains(key)]
    (leaf,) = [leaf for leaf in leaves if leaf.region.contains((key,))]
    assert leaf in slot.leaves
    tasks = [slot_of_task(slots, task) for task in range(task_count(slots))]
    assert [tasks.count(slot) for slot in slots] == [slot.tasks for slot in slots]
    assert all(slots[0].within.min <= slot.within.min for slot in slots)


@given(st.lists(st.integers(0, 1000), min_size=50, max_size=200, unique=True))
def test_slots_of_several_keys_are_balanced(keys: list[int]) -> None:
    slots = plan_slots(make_leaves(300, 310, 320, 700), make_sample(*keys), slot_rows=10)
    for slot in slots:
        assert sum(slot.within.contains(key) for key in keys) <= 20 * slot.tasks


def test_small_leaves_share_a_slot_and_large_leaves_are_cut() -> None:
    leaves = make_leaves(10, 20, 30)
    slots = plan_slots(leaves, make_sample(5, 15, 25, *range(30, 70)), slot_rows=10)
    assert slots[0].leaves == tuple(leaves[:3])
    assert [slot.leaves for slot in slots[1:]] == [(leaves[3],)] * 4


def test_rows_of_a_frequent_key_are_distributed() -> None:
    slots = plan_slots(make_leaves(), make_sample(1, *[7] * 90, 9, weight=10.0), slot_rows=300)
    (hot,) = [slot for slot in slots if slot.within.contains(7)]
    assert hot.tasks == 3
    assert {hot.task_of(turn) for turn in range(6)} == set(
        range(hot.first_task, hot.first_task + 3)
    )


def test_slot_has_all_overlapping_leaves() -> None:
    region = whole_region(TWO_KEYS)
    upper, lower = split_region(region, 1, 0)
    left, right = split_region(lower, 0, 5)
    regions = {"upper": upper, "left": left, "right": right}
    leaves = [Partition(PartitionId(n), r, ROOT_PARTITION_ID) for n, r in regions.items()]
    keys = tuple(((a, b), 1.0) for a, b in itertools.product(range(10), (-1, 1)))
    slots = plan_slots(leaves, KeySample(20, 160, keys), slot_rows=10)
    assert [{leaf.id for leaf in slot.leaves} for slot in slots] == [
        {"upper", "left"},
        {"upper", "right"},
    ]


def test_without_a_sample_there_is_one_slot() -> None:
    (slot,) = plan_slots(make_leaves(1, 2), make_sample(), slot_rows=10)
    assert (len(slot.leaves), slot.tasks) == (3, 1)
