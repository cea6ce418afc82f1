"""Plans from the newest version in memory equal those from the state, whatever is committed."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.errors import StateMovedOnError
from sleeper.files import DataFile
from sleeper.partitions.partition import tree_from_split_points
from sleeper.partitions.region import Range, Region, key_region
from sleeper.query import newest_versions
from sleeper.query.engine import QueryTable
from sleeper.query.key_filters import prune_plan
from sleeper.query.leaf_plan import LeafPlan
from sleeper.query.newest_versions import NewestVersions
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query
from sleeper.query.run import plan_table_query, plan_with_filters
from sleeper.schema.model import Field, PrimitiveType, Schema, schema_to_json
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot
from tests.examples import examples
from tests.tables.data_table import make_engine
from tests.tables.state_table import SCHEMA, StateTable

TWO = Schema((Field("a", PrimitiveType.LONG), Field("b", PrimitiveType.LONG)))
Key = tuple[int, ...]

values = st.integers(-6, 6)
bounds = st.tuples(values, values).map(sorted)


def initialise(folder: Path, schema: Schema) -> StateTable:
    table = StateTable(folder, "embedded")
    tree = tree_from_split_points(schema, [])
    table.store.commit_or_raise(InitialiseTable(schema_to_json(schema), tuple(tree)))
    return table


def add_file(table: StateTable, number: int, bounds: Sequence[Sequence[int]]) -> None:
    low, high = (tuple(each) for each in zip(*bounds, strict=True))
    touched = [leaf.id for leaf in table.leaves() if leaf.region.overlaps_bounds(low, high)]
    file = DataFile(f"f{number}.parquet", 10 * len(touched), 10, low, high)
    references = tuple((leaf, 10) for leaf in touched)
    job = AddFiles(f"job-{number}", table.clock.now_ms, (NewFile(file, references),))
    table.store.commit_or_raise(job)


def split_leaf(table: StateTable, key: Key, dimension: int) -> None:
    leaf = next(each for each in table.leaves() if each.region.contains(key))
    if leaf.region.ranges[dimension].min != key[dimension]:
        table.split_at(leaf.id, key[dimension], dimension)


def make_regions(schema: Schema, data: st.DataObject) -> tuple[Region, ...]:
    fields = len(schema.row_keys)
    keys = data.draw(st.lists(st.tuples(*[values] * fields), max_size=5))
    boxes = data.draw(st.lists(st.tuples(*[bounds] * fields), max_size=int(not keys)))
    ranges = [Region(tuple(Range(low, high + 1) for low, high in box)) for box in boxes]
    return (*(key_region(schema, key) for key in keys), *ranges)


def comparable(plan: QueryPlan) -> list[tuple[object, ...]]:
    """Returns the leaves of a plan. A file of one key may be read whole, or by the key."""
    return [(plan.version, leaf.leaf_ids, _files(leaf)) for leaf in plan.leaves]


def _files(leaf: LeafPlan) -> list[tuple[object, ...]]:
    scans = []
    for scan in leaf.scans:
        has_one_key = scan.file.smallest_key == scan.file.largest_key
        scans.append((scan.file, None if has_one_key else scan.regions, scan.deleted))
    return scans


@settings(deadline=None, max_examples=examples(25))
@given(st.sampled_from([SCHEMA, TWO]), st.data())
def test_plans_equal_those_of_the_state_after_any_commits(
    schema: Schema, data: st.DataObject
) -> None:
    fields = len(schema.row_keys)
    keys = st.tuples(*[values] * fields)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = initialise(folder, schema)
        query_table = QueryTable("t", table.another_store(), DataRoot(folder))
        engine = make_engine(folder)
        for number in range(data.draw(st.integers(1, 6))):
            step = data.draw(st.sampled_from(["add", "add", "split", "delete", "nothing"]))
            if step == "add":
                add_file(table, number, data.draw(st.tuples(*[bounds] * fields)))
            elif step == "split":
                split_leaf(table, data.draw(keys), data.draw(st.integers(0, fields - 1)))
            elif step == "delete":
                box = data.draw(st.none() | st.tuples(*[bounds] * fields))
                region = key_region(schema, data.draw(keys))
                if box is not None:
                    region = Region(tuple(Range(low, high + 1) for low, high in box))
                table.store.commit_or_raise(DeleteRows((region,), id=f"delete-{number}"))
            for _ in range(3):
                query = Query(make_regions(schema, data))
                expected = prune_plan(plan_table_query(query, query_table), lambda _: None)
                plan = plan_with_filters(query, query_table, engine)
                assert comparable(plan) == comparable(expected)


@settings(deadline=None, max_examples=examples(20))
@given(st.sampled_from([SCHEMA, TWO]), st.sampled_from([2, 5_000]), st.data())
def test_each_key_near_deletes_is_planned_as_by_the_state(
    schema: Schema, deletes_max: int, data: st.DataObject
) -> None:
    fields = len(schema.row_keys)
    boxes = st.tuples(*[bounds] * fields)
    patched = mock.patch.object(newest_versions, "_DELETES_AT_ONCE_MAX", deletes_max)
    with patched, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = initialise(folder, schema)
        add_file(table, 1, [(-6, 6)] * fields)
        for number, box in enumerate(data.draw(st.lists(boxes, min_size=1, max_size=5))):
            region = Region(tuple(Range(low, high + 1) for low, high in box))
            table.store.commit_or_raise(DeleteRows((region,), id=f"delete-{number}"))
        add_file(table, 2, [(-6, 6)] * fields)
        query_table, engine = QueryTable("t", table.store, DataRoot(folder)), make_engine(folder)
        for key in range(-6, 7):
            query = Query((key_region(schema, (key, data.draw(values))[:fields]),))
            plan = plan_with_filters(query, query_table, engine)
            expected = prune_plan(plan_table_query(query, query_table), lambda _: None)
            assert comparable(plan) == comparable(expected)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    reads: list[int] = []
    original = StateStore.reading

    def reading(self: StateStore, *arguments: object, **more: object) -> object:
        reads.append(1)
        return original(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(StateStore, "reading", reading)
    return reads


def test_a_key_of_a_known_leaf_is_planned_without_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = initialise(tmp_path, SCHEMA)
    add_file(table, 1, [(0, 9)])
    query_table, engine = QueryTable("t", table.store, DataRoot(tmp_path)), make_engine(tmp_path)

    def plan_key(key: int) -> int:
        plan = plan_with_filters(Query((key_region(SCHEMA, (key,)),)), query_table, engine)
        return len(plan.leaves)

    assert [plan_key(1), plan_key(2)] == [1, 1]
    reads = count_reads(monkeypatch)
    assert [plan_key(3), plan_key(10), plan_key(-1)] == [1, 0, 0]
    assert reads == []
    add_file(table, 2, [(10, 12)])
    assert plan_key(10) == 1


def test_files_in_memory_are_limited(tmp_path: Path) -> None:
    table = initialise(tmp_path, SCHEMA)
    for number in range(3):
        add_file(table, number, [(0, 9)])
    versions, region = NewestVersions(files_max=5), key_region(SCHEMA, (1,))
    known = versions.get("t", table.store)
    assert known.leaf_of(region) is None
    assert versions.get("t", table.store) is known
    assert known.leaf_of(region) is known.leaf_of(region) is not None
    table.split_at(known.leaf_of(region).leaf.id, 5)  # type: ignore[union-attr]
    versions.get("t", table.store)
    known = versions.get("t", table.store)
    leaf = known.leaf_of(region)
    assert leaf is not None
    assert len(leaf.files) == 3
    assert versions.get("t", table.store) is not known


@pytest.mark.parametrize(("files_max", "is_read"), [(5, True), (2, False)])
def test_a_leaf_of_many_files_is_read_after_several_lookups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_max: int, is_read: bool
) -> None:
    monkeypatch.setattr(newest_versions, "_FILES_AT_ONCE_MAX", 2)
    monkeypatch.setattr(newest_versions, "_LOOKUPS_BEFORE_MANY_FILES", 4)
    table = initialise(tmp_path, SCHEMA)
    for number in range(3):
        add_file(table, number, [(0, 9)])
    versions, region = NewestVersions(files_max), key_region(SCHEMA, (1,))
    versions.get("t", table.store)
    known = versions.get("t", table.store)
    assert [known.leaf_of(region) for _ in range(3)] == [None] * 3
    assert len(known.leaf_files(known.leaves_overlapping(region)[0].id, region)) == 3
    assert [known.leaf_of(region) is not None for _ in range(3)] == [is_read] * 3


def test_a_leaf_is_not_read_after_a_transaction(tmp_path: Path) -> None:
    table = initialise(tmp_path, SCHEMA)
    versions = NewestVersions()
    versions.get("t", table.store)
    known = versions.get("t", table.store)
    add_file(table, 1, [(0, 9)])
    with pytest.raises(StateMovedOnError, match="version 1 was planned, and the newest is 2"):
        known.leaf_of(key_region(SCHEMA, (1,)))
