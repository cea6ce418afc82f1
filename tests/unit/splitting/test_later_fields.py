"""Leaves cut on later row key fields, where the first one has few values."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.write import partitioned
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query
from sleeper.query.run import plan_table_query, run_query
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.splitting.service import SplitStatus
from tests.examples import examples
from tests.tables.data_table import DataTable
from tests.unit.conftest import MakeTable

TWO = Schema(
    (Field("a", PrimitiveType.INT), Field("b", PrimitiveType.LONG)),
    (),
    (Field("v", PrimitiveType.STRING),),
)
THREE = Schema(
    (
        Field("a", PrimitiveType.STRING),
        Field("b", PrimitiveType.BYTE_ARRAY),
        Field("c", PrimitiveType.LONG),
    ),
    (),
    (Field("v", PrimitiveType.STRING),),
)


def cuts(leaf: Partition, schema: Schema) -> list[bool]:
    """Which fields the leaf was cut on."""
    region = whole_region(schema).ranges
    return [r != w for r, w in zip(leaf.region.ranges, region, strict=True)]


def count_rows(table: DataTable, leaf: Partition) -> int:
    return sum(leaf.region.contains(k) for k in table.row_keys())


def query(table: DataTable, *regions: Region, **options: Any) -> list[tuple[Any, ...]]:
    result = run_query(
        Query(regions or None, **options),
        QueryTable("t", table.store, table.root),
        QueryEngine(QuerySettings(table.engine)),
    ).read_all()
    return [tuple(row.values()) for row in result.to_pylist()]


def test_a_leaf_of_one_first_value_is_cut_on_the_second_field(make_table: MakeTable) -> None:
    table = make_table(schema=TWO)
    table.ingest([(7, b) for b in range(1000)])
    assert table.split(threshold=250).leaves == 4
    assert [cuts(leaf, TWO) for leaf in table.leaves()] == [[False, True]] * 4
    assert all(abs(count_rows(table, leaf) - 250) <= 5 for leaf in table.leaves())


def test_the_third_field_is_cut_where_the_first_two_have_one_value(make_table: MakeTable) -> None:
    table = make_table(schema=THREE)
    table.ingest([("é", b"x", c) for c in range(1000)])
    assert table.split(threshold=500).leaves == 2
    assert [cuts(leaf, THREE) for leaf in table.leaves()] == [[False, False, True]] * 2
    table.ingest([("é", b"x", 7)] * 1000)
    for _ in range(4):
        table.split_all(threshold=400)
        table.compact(full=True)
    # The key that most rows share has a leaf of its own.
    assert max(count_rows(table, leaf) for leaf in table.leaves()) == 1001


def test_a_leaf_whose_rows_share_their_whole_key_is_unsplittable(make_table: MakeTable) -> None:
    table = make_table(schema=THREE)
    table.ingest([("a", b"b", 3)] * 500)
    assert table.split(threshold=100).status is SplitStatus.UNSPLITTABLE


def test_a_file_that_reaches_outside_the_leaf_is_sampled_for_a_cut_on_the_second_field(
    make_table: MakeTable,
) -> None:
    """Half the file's rows have b below 500, but none of the leaf's rows."""
    table = make_table(schema=TWO)
    table.ingest([(1, b) for b in range(500)] + [(2, b) for b in range(500, 1000)])
    _, right = table.split_at("root", 2)
    assert table.split(right, threshold=250).leaves == 2
    (first, second) = table.leaves()[1:]
    assert cuts(first, TWO) == [True, True]
    assert abs(count_rows(table, first) - 250) <= 5
    assert abs(count_rows(table, second) - 250) <= 5


def test_rows_are_counted_where_the_fields_of_a_file_go_together(make_table: MakeTable) -> None:
    """By shares of each field alone, the leaf would have a quarter of the rows."""
    table = make_table(schema=TWO)
    table.ingest([(a, a) for a in range(1000)])
    left, _ = table.split_at("root", 500)
    table.split_at(left, 500, 1)
    below, above = table.leaves()[:2]
    assert table.split(below.id, threshold=300).rows == 500
    assert table.split(above.id, threshold=300).rows == 0


def test_each_strategy_of_ingest_routes_rows_to_leaves_cut_on_a_later_field(
    make_table: MakeTable,
) -> None:
    table = make_table(schema=TWO)
    table.ingest([(a, b) for a in (1, 2) for b in range(400)])
    for _ in range(3):
        table.split_all(threshold=100)
    assert len(table.leaves()) == 8
    rows = [(a, b) for a in (1, 2, 3) for b in range(0, 400, 10)]
    for strategy in FileStrategy:
        previous = Counter(table.row_keys())
        table.ingest(rows, strategy=strategy)
        assert Counter(table.row_keys()) == previous + Counter(rows)


def test_files_that_are_open_together_are_finished_before_they_fill_the_memory(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned, "_KEPT_BYTES_MAX", 20_000)
    table = make_table(schema=TWO)
    table.split_at("root", 50, 1)
    rows = [(a, b) for a in range(100) for b in range(100)]
    files = table.ingest(rows, strategy=FileStrategy.ONE_FILE_PER_LEAF, batch_rows=500)
    assert len(files) > 4
    assert table.row_keys() == rows


def test_leaves_cut_on_a_later_field_are_merged_into_one_stream_in_key_order(
    make_table: MakeTable,
) -> None:
    table = make_table(schema=TWO)
    table.split_at("root", 50, 1)
    for strategy in FileStrategy:
        table.ingest([(a, b) for a in range(20) for b in range(0, 100, 7)], strategy=strategy)
    rows = query(table)
    assert [r[:2] for r in rows] == table.row_keys()
    assert [r[:2] for r in query(table, limit=17)] == table.row_keys()[:17]
    (plan,) = plan_table_query(Query(), QueryTable("t", table.store, table.root)).leaves
    assert len(plan.leaf_ids) == 2
    assert [s.regions for s in plan.scans if s.file.rows == 300] == [None]


def test_leaves_of_one_first_value_are_read_one_after_the_other(make_table: MakeTable) -> None:
    table = make_table(schema=THREE)
    table.ingest([("a", b"b", c) for c in range(100)])
    table.split(threshold=25)
    plan = plan_table_query(Query(), QueryTable("t", table.store, table.root))
    assert [len(leaf.leaf_ids) for leaf in plan.leaves] == [1, 1, 1, 1]
    assert [r[2] for r in query(table)] == list(range(100))


few = st.integers(0, 2)
many = st.integers(-50, 50)
KEYS = {
    TWO: st.tuples(few, many),
    THREE: st.tuples(st.sampled_from("aé"), st.sampled_from([b"", b"x", b"\xff"]), many),
}


@pytest.mark.parametrize("schema", KEYS, ids=["two", "three"])
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_splits_and_compactions_keep_all_rows_in_key_order(
    schema: Schema, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = DataTable(Path(folder), schema, engine_changes={"merge_files_max": 3})
        try:
            grow_and_check(table, schema, data)
        finally:
            table.close()


def grow_and_check(table: DataTable, schema: Schema, data: st.DataObject) -> None:
    keys: list[tuple[Any, ...]] = []
    versions = {}
    for step in data.draw(st.lists(st.sampled_from("iiissc"), min_size=3, max_size=8)):
        if step == "i":
            more = data.draw(st.lists(KEYS[schema], min_size=1, max_size=60))
            table.ingest(more, strategy=data.draw(st.sampled_from(FileStrategy)))
            keys += more
        elif step == "s":
            table.split_all(threshold=data.draw(st.integers(4, 30)))
        else:
            table.compact(full=True)
        versions[table.number()] = sorted(keys)
    dimensions = len(schema.row_keys)
    for version, expected in versions.items():
        assert [r[:dimensions] for r in query(table, version=version)] == expected
    low, high = sorted([data.draw(KEYS[schema]), data.draw(KEYS[schema])])
    ranges = tuple(
        Range(min(a, b), max(a, b)) if a != b else all_keys
        for a, b, all_keys in zip(low, high, whole_region(schema).ranges, strict=True)
    )
    region = Region(ranges)
    inside = sorted(k for k in keys if region.contains(k))
    assert [r[:dimensions] for r in query(table, region)] == inside
    assert [r[:dimensions] for r in query(table, region, limit=5)] == inside[:5]
    engine = QueryEngine(QuerySettings(table.engine))
    opener = {"t": lambda: QueryTable("t", table.store, table.root)}
    rows = run_sql("SELECT * FROM t", opener, engine).read_all().to_pylist()
    assert sorted(tuple(r.values())[:dimensions] for r in rows) == sorted(keys)
    for leaf in table.leaves():
        with table.store.reading() as state:
            files = state.files.leaf_files(leaf.id)
        assert all(f.rows for f in files)
