"""Queries in pieces: together they are the query, whatever happens to the table meanwhile."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from sleeper.datafiles.merge.bound_iterator import TableIterators
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.query.distributed.pieces import PiecedQuery, QueryPiece, plan_pieces, read_piece
from sleeper.query.distributed.shared_hold import HoldRenewal
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.query.request import Query, region_of_range, regions_of_keys
from sleeper.query.run import run_query
from sleeper.statestore.transactions.holds import CreateHold
from tests.real_table import LONG_SCHEMA, RealTable

BY_LEAF = FileStrategy.ONE_FILE_PER_LEAF
EVERYTHING = Query()
HOLD_SECONDS = 3600


@pytest.fixture
def split(make_table: Callable[..., RealTable]) -> RealTable:
    """Four leaves; a file over all of them, one in each, and one that was there before a split."""
    table = make_table(split_points=[100, 200])
    table.ingest(range(0, 400, 3))
    table.ingest(range(1, 400, 3), strategy=BY_LEAF)
    (_, _, last) = table.leaves()
    table.split_at(last.id, 300)
    table.ingest(range(2, 400, 3), strategy=BY_LEAF)
    return table


def engine_of(table: RealTable) -> QueryEngine:
    return QueryEngine(QuerySettings(table.engine, HOLD_SECONDS), table.clock)


def planned(
    table: RealTable, query: Query = EVERYTHING, piece_bytes: int = 1
) -> tuple[PiecedQuery, list[QueryPiece]]:
    opened = QueryTable("t", table.store, table.root)
    found = plan_pieces(query, opened, engine_of(table), "tests", piece_bytes)
    return pickle.loads(pickle.dumps(found))  # other processes get it so


def rows(table: RealTable, shared: PiecedQuery, piece: QueryPiece) -> list[tuple[Any, ...]]:
    engine = engine_of(table)
    batches = list(read_piece(shared, piece, table.root, TableIterators(), engine))
    assert {b.schema for b in batches} <= {shared.schema}
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def all_rows(table: RealTable, query: Query = EVERYTHING, piece_bytes: int = 1) -> list[Any]:
    shared, pieces = planned(table, query, piece_bytes)
    return [row for piece in pieces for row in rows(table, shared, piece)]


@pytest.mark.parametrize("piece_bytes", [1, 3000, 1_000_000])
def test_the_pieces_together_are_the_query_in_its_order(split: RealTable, piece_bytes: int) -> None:
    query = Query((region_of_range(LONG_SCHEMA, 50, 350),), ("v", "key"))
    whole = run_query(query, QueryTable("t", split.store, split.root), engine_of(split))
    expected = [tuple(row.values()) for row in whole.read_all().to_pylist()]
    assert all_rows(split, query, piece_bytes) == expected
    assert len(expected) == 300


def test_each_leaf_is_a_piece_and_small_ones_go_together(split: RealTable) -> None:
    assert [len(p.leaves) for p in planned(split)[1]] == [1, 1, 1, 1]
    assert [len(p.leaves) for p in planned(split, piece_bytes=10**9)[1]] == [4]


def test_a_shared_file_counts_in_part_in_each_leaf_that_reads_it(split: RealTable) -> None:
    total = sum(file.bytes for file in split.files())
    assert len(planned(split, piece_bytes=total)[1]) == 1


def test_only_leaves_are_read_that_the_ranges_touch(split: RealTable) -> None:
    query = Query(regions_of_keys(LONG_SCHEMA, [(105,), (399,)]))
    _, pieces = planned(split, query)
    (second, fourth) = (p.leaves[0].leaf_ids for p in pieces)
    ids = [leaf.id for leaf in split.leaves()]
    assert {*second, *fourth} <= {*ids}
    assert [row[0] for row in all_rows(split, query)] == [105, 399]


def test_nothing_to_read_takes_no_hold(split: RealTable) -> None:
    before = split.number()
    shared, pieces = planned(split, Query(regions_of_keys(LONG_SCHEMA, [(1000,)])))
    assert (shared.hold, pieces, split.number()) == (None, [], before)


def test_what_was_planned_can_be_read_after_compaction_and_collection(split: RealTable) -> None:
    expected = split.rows()
    shared, pieces = planned(split)
    split.ingest(range(1000, 1010))
    split.compact(full=True)
    split.clock.pass_minutes(30)
    assert split.collect().files == 0
    assert sorted(row for p in pieces for row in rows(split, shared, p)) == expected
    split.clock.pass_minutes(31)
    assert split.collect().files > 0


def test_short_queries_one_after_another_share_a_hold(split: RealTable) -> None:
    first, _ = planned(split)
    number = split.number()
    split.clock.pass_minutes(19)
    later, _ = planned(split)
    assert later.plan.version > first.plan.version
    assert split.number() == number
    split.clock.pass_minutes(2)
    assert planned(split)[0].hold != later.hold
    assert split.number() == number + 1


def test_a_reader_that_goes_on_renews_and_one_that_is_early_does_not_ask(split: RealTable) -> None:
    shared, pieces = planned(split)
    assert shared.hold is not None

    def refuse() -> Any:
        raise AssertionError("the state was opened")

    with HoldRenewal(shared.hold, refuse, split.clock):
        pass
    split.clock.pass_minutes(25)
    with HoldRenewal(shared.hold, lambda: split.store, split.clock):
        split.clock.pass_minutes(58)
        split.compact(full=True)
        split.clock.pass_minutes(1)
        assert split.collect().files == 0
        assert len([row for p in pieces for row in rows(split, shared, p)]) == 400


def test_a_version_that_nobody_kept_is_refused_with_what_to_do(split: RealTable) -> None:
    shared, _ = planned(split)
    assert shared.hold is not None
    split.compact(full=True)
    split.clock.pass_minutes(70)
    assert split.collect().files > 0
    with (
        pytest.raises(StateMovedOnError, match="load the table again"),
        HoldRenewal(shared.hold, lambda: split.store, split.clock),
    ):
        pass


def test_a_renewal_in_the_background_comes_before_the_hold_ends(
    split: RealTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class NoTimer:
        daemon = False

        def __init__(self, seconds: float, action: Callable[[], None]) -> None:
            waits.append(seconds)
            self.action = action
            timers.append(self)

        def start(self) -> None:
            pass

        def cancel(self) -> None:
            pass

    timers: list[NoTimer] = []
    monkeypatch.setattr("threading.Timer", NoTimer)
    shared, _ = planned(split)
    assert shared.hold is not None
    with HoldRenewal(shared.hold, lambda: split.store, split.clock):
        before = split.number()
        split.clock.now_ms += int(waits[0] * 1000)
        timers[0].action()
        assert split.number() == before + 1
    assert waits == [HOLD_SECONDS / 3, HOLD_SECONDS / 3]


def test_a_collection_between_plan_and_hold_makes_it_plan_again(split: RealTable) -> None:
    split.compact(full=True)
    split.clock.pass_minutes(70)

    def compact_and_collect() -> None:
        split.ingest(range(400, 410))
        split.compact(full=True)
        split.clock.pass_minutes(70)
        assert split.collect().files > 0

    split.watched.before_commit.append((CreateHold, compact_and_collect))
    assert len(all_rows(split)) == 410


def test_an_old_version_that_is_gone_is_refused(split: RealTable) -> None:
    version = split.number()
    split.compact(full=True)
    split.clock.pass_minutes(70)
    split.collect()
    with pytest.raises(InvalidRequestError, match="the oldest kept"):
        planned(split, Query(version=version))
