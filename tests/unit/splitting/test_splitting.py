"""Splitting leaves: conditions, split points, missing sidecars and concurrent changes."""

import logging
from collections import Counter
from pathlib import Path

import pytest

from sleeper.datafiles.leaf_keys import FileKeys, estimate_leaf, sample_keys, split_points
from sleeper.errors import DataError, StateMovedOnError
from sleeper.partitions.partition import ROOT_PARTITION_ID as ROOT
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.splitting.find import find_partitions_to_split
from sleeper.splitting.service import SplitResult, SplitStatus
from sleeper.statestore.transactions.partition_split import MarkUnsplittable, SplitPartition
from tests.tables.data_table import DataTable
from tests.tables.watched_ports import Killed
from tests.unit.conftest import MakeTable

TEXT_SCHEMA = Schema((Field("key", PrimitiveType.STRING),), (), (Field("v", PrimitiveType.STRING),))
TWO_KEYS = Schema(
    (Field("a", PrimitiveType.LONG), Field("b", PrimitiveType.LONG)),
    (),
    (Field("v", PrimitiveType.STRING),),
)


def find(table: DataTable, threshold: int) -> list[tuple[PartitionId, int]]:
    with table.store.reading() as state:
        return [(f.partition_id, f.rows_total) for f in find_partitions_to_split(state, threshold)]


def rows_per_leaf(table: DataTable) -> list[int]:
    keys = table.row_keys()
    return [sum(leaf.region.contains(k) for k in keys) for leaf in table.leaves()]


def test_a_leaf_is_found_only_when_it_has_more_rows_than_the_threshold(table: DataTable) -> None:
    table.ingest(range(100))
    assert find(table, 100) == []
    assert find(table, 99) == [(ROOT, 100)]


def test_leaves_are_found_with_their_share_of_files_above_them_largest_first(
    table: DataTable,
) -> None:
    table.ingest(range(100))
    left, right = table.split_at(ROOT, 90)
    table.ingest(range(50, 60))
    assert find(table, 10) == [(left, 60), (right, 50)]
    assert find(table, 55) == [(left, 60)]


def test_a_leaf_is_cut_into_parts_within_the_threshold(table: DataTable) -> None:
    for i in range(4):
        table.ingest(range(i, 4000, 4))
    previous = table.rows()
    assert table.split(threshold=600) == SplitResult(SplitStatus.SPLIT, 4000, 8)
    assert table.rows() == previous
    per_leaf = rows_per_leaf(table)
    assert sum(per_leaf) == 4000
    assert max(per_leaf) <= 600
    assert find(table, 600) == []


def test_text_keys_are_cut_by_their_bytes(make_table: MakeTable) -> None:
    table = make_table(schema=TEXT_SCHEMA)
    table.ingest([f"é{i:03d}" for i in range(500)] + [f"z{i:03d}" for i in range(500)])
    assert table.split(threshold=500).leaves == 2
    (left, _) = table.leaves()
    assert abs(sum(left.region.contains(k) for k in table.row_keys()) - 500) <= 5


def test_a_small_file_hardly_affects_the_split_point_of_a_large_one(table: DataTable) -> None:
    table.ingest(range(10_000))
    for _ in range(5):
        table.ingest(range(100_000, 100_010))
    table.split(threshold=6_000)
    (left, _) = table.leaves()
    cut = left.region.ranges[0].max
    assert isinstance(cut, int)
    assert abs(cut - 5_025) < 150


def test_at_most_eight_levels_are_added_at_once(table: DataTable) -> None:
    table.ingest(range(5_000))
    assert table.split(threshold=1).leaves == 256
    assert min(rows_per_leaf(table)) >= 1


def test_a_leaf_of_one_key_stays_unsplittable_until_it_gets_new_rows(
    table: DataTable,
) -> None:
    table.ingest([7] * 500)
    assert table.split(threshold=100) == SplitResult(SplitStatus.UNSPLITTABLE, 500)
    assert len(table.leaves()) == 1
    assert find(table, 100) == []
    table.ingest([8] * 500)
    assert find(table, 100) == [(ROOT, 1000)]
    assert table.split(threshold=100).status is SplitStatus.SPLIT
    assert rows_per_leaf(table) == [500, 500]


def test_one_key_with_most_of_the_rows_is_cut_off_on_both_sides(table: DataTable) -> None:
    table.ingest([5] * 900 + list(range(100, 150)) + list(range(-50, 0)))
    for _ in range(4):
        table.split_all(threshold=200)
    assert sorted(rows_per_leaf(table)) == [50, 50, 900]
    # The state thinks that the file's rows lie evenly in the leaves; its sketch knows better.
    assert {table.split(i, threshold=200).status for i, _ in find(table, 200)} == {
        SplitStatus.SMALL_ENOUGH
    }


def test_a_shared_files_rows_are_counted_by_its_sketch_not_by_halves(table: DataTable) -> None:
    table.ingest(range(1000))
    left, right = table.split_at(ROOT, 100)
    assert find(table, 400) == [(left, 500), (right, 500)]
    previous = table.number()
    result = table.split(left, threshold=400)
    assert result.status is SplitStatus.SMALL_ENOUGH
    assert abs(result.rows - 100) < 20
    assert table.number() == previous
    assert table.split(right, threshold=400).leaves == 4


def test_a_share_too_small_for_the_sketch_is_sampled_from_the_file(table: DataTable) -> None:
    table.ingest(range(100_000), row_group_rows=1000)
    left, _ = table.split_at(ROOT, 300)
    assert table.split(left, threshold=40) == SplitResult(SplitStatus.SPLIT, 300, 8)
    per_leaf = rows_per_leaf(table)[:8]
    assert sum(per_leaf) == 300
    assert max(per_leaf) <= 40


def test_a_leaf_split_meanwhile_is_unchanged(table: DataTable) -> None:
    table.ingest(range(1000))
    table.watched.before_commit.append((SplitPartition, lambda: table.split_at(ROOT, 10)))
    assert table.split(threshold=100).status is SplitStatus.GONE
    assert len(table.leaves()) == 2
    assert table.split(threshold=100) == SplitResult(SplitStatus.GONE)
    assert table.split(PartitionId("never"), threshold=100) == SplitResult(SplitStatus.GONE)


def test_a_leaf_split_before_its_mark_is_unchanged(table: DataTable) -> None:
    table.ingest([7] * 500)
    table.watched.before_commit.append((MarkUnsplittable, lambda: table.split_at(ROOT, 10)))
    assert table.split(threshold=100).status is SplitStatus.GONE


def test_new_files_between_reading_and_splitting_stay_readable(table: DataTable) -> None:
    table.ingest(range(1000))
    table.watched.before_commit.append((SplitPartition, lambda: table.ingest(range(500, 600))))
    table.split(threshold=600)
    assert Counter(table.row_keys()).total() == 1100


@pytest.mark.parametrize("damage", ["torn", "gone", "other"])
def test_a_damaged_sidecar_is_replaced_by_samples_of_the_file(
    table: DataTable, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    (file,) = table.ingest(range(1000))
    sidecar = table.root.folder / (file.path + ".sketches")
    if damage == "gone":
        sidecar.unlink()
    else:
        sidecar.write_bytes(sidecar.read_bytes()[:40] if damage == "torn" else b"what")
    with caplog.at_level(logging.WARNING):
        result = table.split(threshold=300)
    assert result == SplitResult(SplitStatus.SPLIT, 1000, 4)
    assert max(rows_per_leaf(table)) <= 260
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert str(file.path) in warning.getMessage()


def test_many_damaged_sidecars_cause_one_warning(
    table: DataTable, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        (file,) = table.ingest(range(1000))
        (table.root.folder / (file.path + ".sketches")).unlink()
    with caplog.at_level(logging.WARNING):
        table.split(threshold=300)
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1


def test_the_error_names_an_unreadable_file(table: DataTable) -> None:
    (file,) = table.ingest(range(1000))
    path: Path = table.root.folder / file.path
    path.with_name(path.name + ".sketches").unlink()
    path.write_text("nothing")
    with pytest.raises(DataError, match=file.path):
        table.split(threshold=300)
    path.unlink()
    with pytest.raises(StateMovedOnError, match=f"{file.path} is missing"):
        table.split(threshold=300)


def test_only_the_largest_files_are_read_and_the_others_are_counted(table: DataTable) -> None:
    table.ingest(range(1000))
    for i in range(5):
        (small,) = table.ingest(range(i, 10 + i))
        (table.root.folder / (small.path + ".sketches")).unlink()
        (table.root.folder / small.path).write_text("not to be read")
    assert table.split(threshold=600, files_max=1) == SplitResult(SplitStatus.SPLIT, 1050, 2)


def test_keys_are_sampled_from_the_row_groups_of_the_region_only(make_table: MakeTable) -> None:
    table = make_table(schema=TWO_KEYS)
    (file,) = table.ingest([(i // 10, i) for i in range(50_000)], row_group_rows=100)
    table.split_at(ROOT, 100)
    (left, right) = table.leaves()
    keys = sample_keys(table.root, table.schema, file, left.region)
    assert keys.rows == 1000
    assert [len(points) for points in keys.points] == [1000, 1000]
    assert keys.points[1] == tuple(range(1000))
    keys = sample_keys(table.root, table.schema, file, right.region)
    assert keys.rows == pytest.approx(49_000, rel=0.01)
    assert max(len(points) for points in keys.points) < 10_000
    everywhere = sample_keys(table.root, table.schema, file, whole_region(table.schema))
    assert everywhere.rows == pytest.approx(50_000, rel=0.01)


def test_unread_files_are_estimated_by_the_share_of_read_files(table: DataTable) -> None:
    (a,) = table.ingest(range(100))
    (b,) = table.ingest(range(50, 150))
    (inside,) = table.ingest(range(10))
    table.split_at(ROOT, 50)
    region = table.leaves()[0].region
    seen = [(a, FileKeys(30.0, ((1, 2, 3),)))]
    assert estimate_leaf(region, seen, [b, inside]).rows == 30 + 30 + 10
    assert estimate_leaf(region, [], [inside]).rows == 10


def test_points_without_rows_on_both_sides_cut_nothing(table: DataTable) -> None:
    region = whole_region(table.schema)
    within = region.ranges[0]
    assert split_points(estimate_leaf(region, [], []), within, 0, 2) == []


def test_an_interrupted_split_can_be_repeated(make_table: MakeTable) -> None:
    for die_at in range(100):
        table = make_table()
        table.ingest(range(1000))
        previous = table.rows()
        table.ticks.count, table.ticks.die_at = 0, die_at
        try:
            table.split(threshold=600)
        except Killed:
            table.reopen()
            assert table.rows() == previous
            assert table.split(threshold=600).status in (SplitStatus.SPLIT, SplitStatus.GONE)
            assert len(table.leaves()) == 2
        else:
            assert die_at > 2
            return
    pytest.fail("it never ended")
