"""Reads in parts: their rows are those of the query, whatever other writers do meanwhile."""

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sleeper.datafiles.merge.steps import TableIterators
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.processing.model import Aggregation, AggregationOp, Processing
from sleeper.query import hold
from sleeper.query.distributed import plan as plan_module
from sleeper.query.distributed import read as read_module
from sleeper.query.distributed.plan import Part, divide_leaves
from sleeper.query.distributed.read import Read, plan_read, read_part
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.hold import HoldRenewal
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import plan_table_query, run_query
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.holds import Holds
from tests.tables.data_table import LONG_SCHEMA, DataTable

BY_LEAF = FileStrategy.ONE_FILE_PER_LEAF
ALL_ROWS = Query()
LONG = Field("key", PrimitiveType.LONG)
TWO = Schema((LONG, Field("b", PrimitiveType.LONG)), (), (Field("v", PrimitiveType.STRING),))
HOLD_SECONDS = 3600


@pytest.fixture
def split(make_table: Callable[..., DataTable]) -> DataTable:
    """Four leaves; a file over all of them, one in each, and one from before a split."""
    table = make_table(split_points=[100, 200])
    table.ingest(range(0, 400, 3))
    table.ingest(range(1, 400, 3), strategy=BY_LEAF)
    (_, _, last) = table.leaves()
    table.split_at(last.id, 300)
    table.ingest(range(2, 400, 3), strategy=BY_LEAF)
    return table


def make_engine(table: DataTable) -> QueryEngine:
    return QueryEngine(QuerySettings(table.engine, HOLD_SECONDS), table.clock)


def plan_parts(
    table: DataTable, query: Query = ALL_ROWS, part_bytes: int = 1
) -> tuple[Read, list[Part]]:
    query_table = QueryTable("t", table.store, table.root)
    plan = plan_read(query, query_table, make_engine(table), "tests", part_bytes)
    return pickle.loads(pickle.dumps(plan))  # as other processes receive it


def rows(table: DataTable, read: Read, part: Part) -> list[tuple[Any, ...]]:
    engine = make_engine(table)
    batches = list(read_part(read, part, table.root, TableIterators(), engine))
    assert {b.schema for b in batches} <= {read.schema}
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def all_rows(table: DataTable, query: Query = ALL_ROWS, part_bytes: int = 1) -> list[Any]:
    read, parts = plan_parts(table, query, part_bytes)
    return [row for part in parts for row in rows(table, read, part)]


@pytest.mark.parametrize("part_bytes", [1, 3000, 1_000_000])
def test_parts_give_the_query_s_rows_in_its_order(split: DataTable, part_bytes: int) -> None:
    query = Query((make_range_region(LONG_SCHEMA, 50, 350),), ("v", "key"))
    full_result = run_query(query, QueryTable("t", split.store, split.root), make_engine(split))
    expected = [tuple(row.values()) for row in full_result.read_all().to_pylist()]
    assert all_rows(split, query, part_bytes) == expected
    assert len(expected) == 300


def test_each_leaf_is_a_part_and_small_leaves_are_grouped(split: DataTable) -> None:
    assert [len(p.leaves) for p in plan_parts(split)[1]] == [1, 1, 1, 1]
    assert [len(p.leaves) for p in plan_parts(split, part_bytes=10**9)[1]] == [4]


def test_a_shared_file_counts_in_equal_shares(split: DataTable) -> None:
    total = sum(file.bytes for file in split.files())
    assert len(plan_parts(split, part_bytes=total)[1]) == 1


@pytest.fixture
def divides_small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_module, "_DIVIDED_BYTES_MIN", 1)


@pytest.mark.usefixtures("divides_small_leaves")
@pytest.mark.parametrize("regions", [None, [(50, 350)], [(0, 10), (20, 130), (399, 500)]])
def test_a_large_leaf_is_divided_and_every_row_read_once(
    split: DataTable, regions: list[tuple[int, int]] | None
) -> None:
    ranges = None if regions is None else [make_range_region(LONG_SCHEMA, *r) for r in regions]
    query = Query(None if ranges is None else tuple(ranges))
    full_result = run_query(query, QueryTable("t", split.store, split.root), make_engine(split))
    expected = [tuple(row.values()) for row in full_result.read_all().to_pylist()]
    _, parts = plan_parts(split, query, 500)
    by_leaf = Counter(leaf.leaf_ids for part in parts for leaf in part.leaves)
    assert max(by_leaf.values()) > 1
    assert all_rows(split, query, 500) == expected


@pytest.mark.usefixtures("divides_small_leaves")
def test_rows_of_one_key_are_aggregated_in_one_part(make_table: Callable[..., DataTable]) -> None:
    table = make_table(processing=Processing(aggregations=(Aggregation(AggregationOp.MAX, "v"),)))
    for _ in range(3):
        table.ingest([key // 10 for key in range(200)])
    assert len(plan_parts(table, part_bytes=500)[1]) > 1
    assert [row[0] for row in all_rows(table, part_bytes=500)] == list(range(20))


@pytest.mark.usefixtures("divides_small_leaves")
def test_a_leaf_of_one_first_value_is_divided_on_the_second_field(
    make_table: Callable[..., DataTable],
) -> None:
    table = make_table(schema=TWO)
    table.ingest([(7, b) for b in range(1000)])
    assert len(plan_parts(table, part_bytes=1000)[1]) > 1
    assert all_rows(table, part_bytes=1000) == table.rows()


def test_a_lookup_of_many_keys_reads_no_sketches(
    split: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "_REGIONS_MAX", 10)
    query = Query(make_key_regions(LONG_SCHEMA, [(key,) for key in range(0, 100, 2)]))
    plan = plan_table_query(query, QueryTable("t", split.store, split.root))
    for file in plan.files:
        (split.root.folder / (file.path + ".sketches")).unlink()
        (split.root.folder / file.path).unlink()
    assert divide_leaves(plan, split.root, 50, 1) == list(plan.leaves)


def test_only_leaves_that_overlap_the_regions_are_read(split: DataTable) -> None:
    query = Query(make_key_regions(LONG_SCHEMA, [(105,), (399,)]))
    _, parts = plan_parts(split, query)
    (second, fourth) = (p.leaves[0].leaf_ids for p in parts)
    ids = [leaf.id for leaf in split.leaves()]
    assert {*second, *fourth} <= {*ids}
    assert [row[0] for row in all_rows(split, query)] == [105, 399]


def test_an_empty_read_takes_no_hold(split: DataTable) -> None:
    previous = split.number()
    read, parts = plan_parts(split, Query(make_key_regions(LONG_SCHEMA, [(1000,)])))
    assert (read.hold, parts, split.number()) == (None, [], previous)


def test_a_planned_read_survives_compaction_and_collection(split: DataTable) -> None:
    expected = split.rows()
    read, parts = plan_parts(split)
    split.ingest(range(1000, 1010))
    split.compact(full=True)
    split.clock.pass_minutes(30)
    assert split.collect().files == 0
    assert sorted(row for p in parts for row in rows(split, read, p)) == expected
    split.clock.pass_minutes(31)
    assert split.collect().files > 0


def test_successive_short_reads_share_a_hold(split: DataTable) -> None:
    number = split.number()
    plan_parts(split)
    split.clock.pass_minutes(19)
    later, _ = plan_parts(split)
    assert len(split.holds()) == 1
    split.clock.pass_minutes(2)
    assert plan_parts(split)[0].hold != later.hold
    assert len(split.holds()) == 2
    assert split.number() == number


def test_a_long_read_renews_its_hold_and_a_short_one_opens_no_state(split: DataTable) -> None:
    read, parts = plan_parts(split)
    assert read.hold is not None

    def refuse() -> Any:
        raise AssertionError("the state was opened")

    with HoldRenewal(read.hold, refuse, split.clock):
        pass
    split.clock.pass_minutes(25)
    with HoldRenewal(read.hold, lambda: split.store, split.clock):
        split.clock.pass_minutes(58)
        split.compact(full=True)
        split.clock.pass_minutes(1)
        assert split.collect().files == 0
        assert len([row for p in parts for row in rows(split, read, p)]) == 400


def test_a_collected_version_is_refused_with_advice(split: DataTable) -> None:
    read, _ = plan_parts(split)
    assert read.hold is not None
    split.compact(full=True)
    split.clock.pass_minutes(70)
    assert split.collect().files > 0
    with (
        pytest.raises(StateMovedOnError, match="load the table again"),
        HoldRenewal(read.hold, lambda: split.store, split.clock),
    ):
        pass


def test_background_renewal_precedes_the_hold_s_expiry(
    split: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoRenewal:
        def __init__(
            self, _name: str, action: Callable[[], None], period_seconds: Callable[[], float]
        ) -> None:
            self.action = action
            self.period_seconds = period_seconds
            renewals.append(self)

        def start(self) -> None:
            pass

        def cancel(self) -> None:
            pass

    renewals: list[NoRenewal] = []
    monkeypatch.setattr(hold, "Renewal", NoRenewal)
    read, _ = plan_parts(split)
    assert read.hold is not None
    with HoldRenewal(read.hold, lambda: split.store, split.clock):
        previous = len(split.holds())
        (renewal,) = renewals
        assert renewal.period_seconds() == HOLD_SECONDS / 3
        split.clock.now_ms += HOLD_SECONDS * 1000 // 3
        renewal.action()
        assert len(split.holds()) == previous + 1
        assert renewal.period_seconds() == HOLD_SECONDS / 3


def test_a_collection_between_plan_and_hold_repeats_the_plan(
    split: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    split.compact(full=True)
    split.clock.pass_minutes(70)

    def compact_and_collect() -> None:
        monkeypatch.undo()
        split.ingest(range(400, 410))
        split.compact(full=True)
        split.clock.pass_minutes(70)
        assert split.collect().files > 0

    take = Holds.take
    monkeypatch.setattr(Holds, "take", lambda *a, **k: (compact_and_collect(), take(*a, **k)))
    assert len(all_rows(split)) == 410


def test_a_collected_old_version_is_refused(split: DataTable) -> None:
    version = split.number()
    split.compact(full=True)
    split.clock.pass_minutes(70)
    split.collect()
    with pytest.raises(InvalidRequestError, match="the oldest readable version"):
        plan_parts(split, Query(version=version))
