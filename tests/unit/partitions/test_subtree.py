"""The partitions that a split adds tile the leaf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition, levels_needed, subtree
from sleeper.partitions.region import whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema((Field("n", PrimitiveType.INT), Field("s", PrimitiveType.STRING)))
ROOT = Partition(ROOT_PARTITION_ID, whole_region(SCHEMA))


@given(st.sets(st.integers(-50, 50), min_size=1), st.integers(-60, 60))
def test_every_key_lies_in_exactly_one_new_leaf(points: set[int], key: int) -> None:
    additions = subtree(ROOT, 0, sorted(points))
    leaves = [p for p in additions if p.is_leaf]
    assert len(leaves) == len(points) + 1
    assert sum(p.region.contains((key, "x")) for p in leaves) == 1
    names = {ROOT.id}
    for p in additions:
        assert p.parent_id in names
        names.add(p.id)
    for parent in [ROOT, *(p for p in additions if not p.is_leaf)]:
        assert sum(p.parent_id == parent.id for p in additions) == 2


def test_a_leaf_can_be_cut_on_another_dimension() -> None:
    left, right = subtree(ROOT, 1, ["m"])
    assert left.region.contains((7, "a"))
    assert right.region.contains((7, "m"))


@pytest.mark.parametrize(
    ("rows", "threshold", "levels"),
    [(10, 10, 0), (11, 10, 1), (20, 10, 1), (41, 10, 3), (10**9, 1, 8)],
)
def test_levels_halve_the_rows_until_they_are_within_the_threshold(
    rows: int, threshold: int, levels: int
) -> None:
    assert levels_needed(rows, threshold) == levels
