"""Random tables return the rows of a list, by key, by SQL and from files alone."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.merge.steps import TableIterators
from sleeper.partitions.region import Range, Region
from sleeper.query.distributed.files import divide_files
from sleeper.query.distributed.plan import Part
from sleeper.query.distributed.read import Read, read_part
from sleeper.query.engine import QueryEngine
from sleeper.query.request import Query
from sleeper.query.run import plan_table_query, run_query
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.examples import examples
from tests.tables.data_table import DataTable, Row, list_rows, make_engine

pytestmark = pytest.mark.usefixtures("holds_of_reads")

ONE_FIELD = Schema(
    (Field("a", PrimitiveType.INT),),
    (Field("s", PrimitiveType.LONG),),
    (Field("v", PrimitiveType.STRING),),
)
TWO_FIELDS = Schema(
    (Field("a", PrimitiveType.INT), Field("B c", PrimitiveType.STRING)),
    (),
    (Field("v", PrimitiveType.LONG),),
)

numbers = st.integers(-20, 20)
words = st.text("aé😀", max_size=2)


def ranges(values: st.SearchStrategy, least: object) -> st.SearchStrategy[Range]:
    def build(ends: list) -> Range:
        low, high = sorted(ends)
        return Range(low, high)

    closed_ranges = st.lists(values, min_size=2, max_size=2, unique=True).map(build)
    return st.one_of(
        closed_ranges, values.map(lambda v: Range(v, None)), st.just(Range(least, None))
    )


SMALLEST_INT = -(2**31)
regions_1d = st.tuples(ranges(numbers, SMALLEST_INT)).map(Region)
regions_2d = st.tuples(ranges(numbers, SMALLEST_INT), ranges(words, "")).map(Region)
rows_1d = st.lists(st.tuples(numbers, numbers, words), max_size=12)
rows_2d = st.lists(st.tuples(numbers, words, numbers), max_size=12)

steps = st.lists(st.tuples(st.sampled_from("aaaassc"), st.integers(0, 10**6)), max_size=10)


def grow(table: DataTable, data: st.DataObject, rows: st.SearchStrategy, points: list) -> None:
    """Adds shared files and files of single partitions; splits, compacts, collects."""
    for step, choice in data.draw(steps):
        leaves, partitions = table.leaves(), table.partitions()
        if step == "a":
            partition = [None, *partitions][choice % (len(partitions) + 1)]
            table.add_rows(data.draw(rows), partition and partition.id)
        elif step == "s":
            leaf = leaves[choice % len(leaves)]
            dimension = choice % len(points)
            point = data.draw(points[dimension])
            within = leaf.region.ranges[dimension]
            if within.contains(point) and point != within.min:
                table.split_at(leaf.id, point, dimension)
        else:
            table.compact_partition(partitions[choice % len(partitions)])


def check(table: DataTable, folder: Path, regions: list[Region], files_max: int) -> None:
    engine = make_engine(folder, merge_files_max=files_max)
    keys = len(table.schema.row_keys)

    def select_rows(rows: list[Row]) -> list[Row]:
        return sorted(r for r in rows if any(region.contains(r[:keys]) for region in regions))

    for version in sorted(table.expected_versions)[-3:]:
        query = Query(tuple(regions), version=version)
        actual = list_rows(run_query(query, table.query_table, engine).read_all())
        assert sorted(actual) == select_rows(table.expected_versions[version])
        for limits in ((1, 2), (16, 64)):
            assert sorted(rows_of_files(table, query, engine, *limits)) == sorted(actual)
    all_rows = run_query(Query(), table.query_table, engine).read_all()
    assert sorted(list_rows(all_rows)) == sorted(table.expected_rows)
    with run_sql("SELECT * FROM t", {"t": lambda: table.query_table}, engine) as result:
        assert sorted(list_rows(result.read_all())) == sorted(table.expected_rows)
    assert table.holds() == []


def rows_of_files(
    table: DataTable, query: Query, engine: QueryEngine, groups_max: int, regions_max: int
) -> list[Row]:
    """The rows of files that an engine only filters by key, and those of the rest."""
    plan = plan_table_query(query, table.query_table)
    groups, leaves = divide_files(plan, groups_max, regions_max)
    keys = len(table.schema.row_keys)
    stored = [
        row
        for group in groups
        for path in group.paths
        for row in list_rows(pq.read_table(table.root.url_of(path)))
        if group.regions is None or any(r.contains(row[:keys]) for r in group.regions)
    ]
    read = Read(query, replace(plan, leaves=()), 0)
    rest = read_part(read, Part(leaves), table.root, TableIterators(), engine)
    return stored + list_rows(pa.Table.from_batches(rest, read.schema))


@settings(max_examples=examples(18), deadline=None)
@given(st.data())
def test_random_regions_with_one_key_field(data: st.DataObject):
    with tempfile.TemporaryDirectory() as folder:
        table = DataTable(Path(folder), ONE_FIELD, sorted(data.draw(st.sets(numbers, max_size=3))))
        grow(table, data, rows_1d, [numbers])
        regions = data.draw(st.lists(regions_1d, max_size=5))
        check(table, Path(folder), regions, data.draw(st.sampled_from([2, 64])))
        ordered_rows = list_rows(
            run_query(Query(), table.query_table, make_engine(Path(folder))).read_all()
        )
        assert [r[:2] for r in ordered_rows] == sorted(r[:2] for r in table.expected_rows)


@settings(max_examples=examples(18), deadline=None)
@given(st.data())
def test_random_regions_with_two_key_fields(data: st.DataObject):
    with tempfile.TemporaryDirectory() as folder:
        table = DataTable(Path(folder), TWO_FIELDS, sorted(data.draw(st.sets(numbers, max_size=2))))
        grow(table, data, rows_2d, [numbers, words])
        regions = data.draw(st.lists(regions_2d, max_size=5))
        check(table, Path(folder), regions, 64)
