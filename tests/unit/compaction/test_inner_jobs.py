"""Compaction of files in inner partitions, and when their references go down."""

import pyarrow as pa
import pytest

import sleeper
from sleeper.compaction.plan import compact_table
from sleeper.compaction.push_down import push_down_references
from sleeper.partitions.partition import ROOT_PARTITION_ID as ROOT
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.reading.descent import Descent
from tests.tables.data_table import DataTable
from tests.tables.opened import run_compaction_jobs
from tests.unit.conftest import MakeTable

_BYTES = 1024**4


def rows_of_partitions(table: DataTable) -> dict[str, list[int]]:
    with table.store.reading() as state:
        return {p: [f.rows for f in files] for p, files in state.files.partition_references()}


@pytest.fixture
def leaves_of_ten(make_table: MakeTable) -> DataTable:
    """A table of eight leaves. Three files are merged, and a leaf needs four rows."""
    return make_table(split_points=range(10, 80, 10)).set(
        sleeper__table__compaction__strategy__class="BasicCompactionStrategy",
        sleeper__table__compaction__files__batch__size=3,
        sleeper__table__compaction__leaf__rows__min=4,
        sleeper__table__compaction__leaf__bytes__min=_BYTES,
    )


def test_files_of_few_rows_per_leaf_are_merged_by_one_job(leaves_of_ten: DataTable) -> None:
    table = leaves_of_ten
    for start in range(3):
        table.ingest(range(start, 80, 9), partition_id=ROOT)
    before = table.rows()
    report = table.create_jobs()
    assert (report.created, report.references_pushed_down) == (1, 0)
    table.run_all()
    assert rows_of_partitions(table) == {ROOT: [27]}
    assert table.rows() == before


def test_a_file_of_enough_rows_gets_references_in_the_leaves(leaves_of_ten: DataTable) -> None:
    table = leaves_of_ten
    for start in range(3):
        table.ingest(range(start, 80, 3), partition_id=ROOT)
    table.compact()
    assert rows_of_partitions(table) == {ROOT: [80]}
    before = table.rows()
    assert table.create_jobs().references_pushed_down == 1
    assert list(rows_of_partitions(table).values()) == [[10]] * 8
    assert table.rows() == before


def test_a_reference_goes_down_to_the_lowest_partition_with_all_keys(
    leaves_of_ten: DataTable,
) -> None:
    table = leaves_of_ten
    table.ingest([1, 2], partition_id=ROOT)
    table.ingest([1, 19], partition_id=ROOT)
    table.ingest([1, 79], partition_id=ROOT)
    assert table.create_jobs().references_pushed_down == 2
    with table.store.reading() as state:
        (first,) = state.partitions.leaves_overlapping([state.partitions.get(ROOT).region])[:1]
        assert rows_of_partitions(table) == {ROOT: [2], first.id: [2], first.parent_id: [2]}
    assert table.create_jobs().references_pushed_down == 0


def test_a_file_too_large_for_one_job_and_too_small_for_the_leaves_goes_down_some_levels(
    make_table: MakeTable,
) -> None:
    table = make_table(split_points=range(1, 512))
    table.ingest(range(0, 512, 2), partition_id=ROOT)
    table.ingest(range(256), partition_id=ROOT)
    before = table.rows()
    # 256 leaves of 512 would get enough: sixteen rows or more for each partition.
    assert push_down_references(table.store, Descent(1, _BYTES)) == 2
    counts = rows_of_partitions(table)
    assert sorted(map(len, counts.values())) == [1] * (256 + 16)
    assert sorted(rows for each in counts.values() for rows in each) == [1] * 256 + [16] * 16
    assert table.rows() == before


def test_without_the_property_references_go_to_the_leaves(leaves_of_ten: DataTable) -> None:
    table = leaves_of_ten.set(sleeper__table__compaction__leaf__rows__min=0)
    table.ingest([1, 79], partition_id=ROOT)
    table.create_jobs()
    assert list(rows_of_partitions(table).values()) == [[1]] * 8


def test_a_partition_that_is_split_during_its_job_keeps_the_output(
    leaves_of_ten: DataTable,
) -> None:
    table = leaves_of_ten
    for _ in range(3):
        table.ingest([1, 9])
    table.create_jobs()
    ((leaf, _),) = rows_of_partitions(table).items()
    halves = table.split_at(PartitionId(leaf), 5)
    table.ingest([2, 7])
    before = table.rows()
    table.run_all()
    assert rows_of_partitions(table) == {leaf: [6], **{half: [1] for half in halves}}
    table.create_jobs()
    assert table.rows() == before


def test_a_full_compaction_leaves_one_file_for_each_key(leaves_of_ten: DataTable) -> None:
    table = leaves_of_ten
    table.ingest(range(0, 80, 9), partition_id=ROOT)
    table.ingest(range(0, 80, 10), partition_id=ROOT)
    assert len(table.compact(full=True)) == 1
    assert [*rows_of_partitions(table)] == [ROOT]
    table.ingest([1, 2, 3])
    before = table.rows()
    assert len(table.compact(full=True)) == 1
    counts = rows_of_partitions(table)
    assert [len(each) for each in counts.values()] == [1] * 8
    assert table.rows() == before


_SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "valueFields": [{"name": "value", "type": "StringType"}],
}
_LATEST = {
    "sleeper.table.rows": "latest",
    "sleeper.table.compaction.leaf.rows.min": "4",
    "sleeper.table.compaction.leaf.bytes.min": str(_BYTES),
    "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
    "sleeper.table.compaction.files.batch.size": "2",
}


@pytest.mark.parametrize(
    ("older", "later"), [([5], 35), ([5, 6, 7, 8], 35), ([5, 15], 35), ([5, 35], 7)]
)
def test_a_tombstone_stays_while_another_partition_has_an_older_row(
    instance: sleeper.Instance, older: list[int], later: int
) -> None:
    table = instance.create_table("rows", _SCHEMA, _LATEST, split_points=[10, 20, 30])
    table.ingest(pa.table({"key": older, "value": ["old"] * len(older)}))
    rows = {"key": [5, later], "value": ["", "new"], "op": ["delete", "u"]}
    table.ingest(pa.table(rows), op_column="op")
    table.ingest(pa.table({"key": [6, later], "value": ["newer", "newer"]}))
    expected = sorted({*older, 6, later} - {5})
    assert table.query().to_arrow()["key"].to_pylist() == expected
    compact_table(instance._ports, "rows")
    assert run_compaction_jobs(instance._ports) == 1
    assert table.query().to_arrow()["key"].to_pylist() == expected
