"""Splits before a bulk import, also with concurrent splits."""

import pytest

from sleeper.bulk_import.run import plan_presplit, presplit, read_leaves
from sleeper.bulk_import.splits import KeySample
from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition
from sleeper.partitions.region import whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.store import StateStore
from tests.tables.state_table import StateTable

TWO_KEYS = Schema((Field("a", PrimitiveType.LONG), Field("b", PrimitiveType.STRING)))


@pytest.fixture
def table(tmp_path) -> StateTable:
    return StateTable(tmp_path, "remote").initialise()


def make_sample(keys: range, rows_each: float = 1000.0) -> KeySample:
    weighted = tuple(((key,), rows_each) for key in keys)
    return KeySample(round(len(keys) * rows_each), 8 * len(keys), weighted)


def counts(state: StateStore, keys: range) -> list[int]:
    return [sum(leaf.region.contains((k,)) for k in keys) for leaf in read_leaves(state)]


def test_presplit_makes_leaves_of_equal_numbers_of_keys(table: StateTable) -> None:
    keys = range(0, 4096)
    leaves = presplit(table.store, make_sample(keys), 256)
    assert len(leaves) == 256
    assert set(counts(table.store, keys)) == {16}


def test_many_leaves_need_several_rounds(table: StateTable) -> None:
    keys = range(0, 1000)
    assert len(presplit(table.store, make_sample(keys), 500)) >= 500
    assert max(counts(table.store, keys)) <= 4


def test_leaves_are_split_by_their_share_of_the_keys(table: StateTable) -> None:
    table.split(ROOT_PARTITION_ID, 100, "left", "right")
    leaves = presplit(table.store, make_sample(range(90, 190)), 10)
    assert {leaf.region.ranges[0].max for leaf in leaves} >= {100}
    assert len([leaf for leaf in leaves if leaf.region.ranges[0].min < 100]) == 1
    assert 9 <= len(leaves) <= 11


def test_enough_leaves_are_not_split(table: StateTable) -> None:
    table.split(ROOT_PARTITION_ID, 5, "left", "right")
    assert len(presplit(table.store, make_sample(range(100)), 2)) == 2


def test_few_rows_make_few_leaves(table: StateTable) -> None:
    assert len(presplit(table.store, make_sample(range(4096), rows_each=1.0), 256)) == 4
    assert len(read_leaves(table.store)) == 4


@pytest.mark.parametrize(
    ("leaf_bytes_min", "leaves"), [(0, 256), (128, 256), (1024, 32), (10**6, 1)]
)
def test_few_bytes_make_few_leaves(table: StateTable, leaf_bytes_min: int, leaves: int) -> None:
    sample = make_sample(range(4096))
    assert sample.bytes == 32 * 1024
    assert len(presplit(table.store, sample, 256, leaf_bytes_min)) == leaves


def test_a_split_table_is_not_split_further_for_few_bytes(table: StateTable) -> None:
    table.split(ROOT_PARTITION_ID, 5, "left", "right")
    assert len(presplit(table.store, make_sample(range(100)), 10, 10**6)) == 2


def test_a_single_key_cannot_be_split(table: StateTable) -> None:
    assert len(presplit(table.store, make_sample(range(7, 8), rows_each=1e6), 256)) == 1


@pytest.mark.parametrize("other", ["split", "import"])
def test_concurrent_split_is_continued(table: StateTable, other: str) -> None:
    rival = table.another_store()
    keys = range(0, 1024)

    def win() -> None:
        if other == "import":
            presplit(rival, make_sample(range(0, 512)), 16)
        else:
            rival.commit(table.make_split(ROOT_PARTITION_ID, 300, "left", "right"))

    table.log.before_next_append = win
    leaves = presplit(table.store, make_sample(keys), 16)
    assert leaves == read_leaves(table.store)
    assert 16 <= len(leaves) <= 32
    assert sum(counts(table.store, keys)) == len(keys)
    if other == "split":
        assert 300 in {leaf.region.ranges[0].min for leaf in leaves}


def test_next_field_is_cut_if_the_first_has_one_value() -> None:
    root = Partition(ROOT_PARTITION_ID, whole_region(TWO_KEYS))
    weighted = tuple(((1, chr(97 + i)), 10.0) for i in range(20))
    (split,) = plan_presplit([root], KeySample(200, 0, weighted), 4)
    leaves = [p for p in split.descendants if p.is_leaf]
    assert [leaf.region.ranges[0] for leaf in leaves] == [root.region.ranges[0]] * 4
    assert len({leaf.region.ranges[1].min for leaf in leaves}) == 4
