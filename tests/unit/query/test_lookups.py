"""Lookups that wait together are answered by one query, each as if it were alone."""

import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.errors import DataError, InvalidRequestError
from sleeper.partitions.region import key_region
from sleeper.processing.model import NO_PROCESSING, IteratorCall, Processing
from sleeper.processing.restriction import Restriction
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query import lookups
from sleeper.query.engine import QueryEngine
from sleeper.query.lookups import is_lookup, lookup_group, open_lookup, read_together
from sleeper.query.request import Query, make_range_region
from sleeper.query.result import TimeLimit
from sleeper.query.run import run_query
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.transactions.delete_rows import DeleteRows
from tests.tables.data_table import DataTable, Row, list_rows, make_engine

ONE = Schema(
    (Field("k", PrimitiveType.STRING),),
    (Field("s", PrimitiveType.LONG),),
    (Field("v", PrimitiveType.LONG), Field("t", PrimitiveType.TIMESTAMP)),
)
TWO = replace(ONE, row_keys=(Field("k", PrimitiveType.STRING), Field("k2", PrimitiveType.LONG)))
WAIT_SECONDS = 30

small = st.integers(0, 4)


def make_key(schema: Schema, value: int) -> tuple[str | int, ...]:
    return (f"k{value}", value % 2)[: len(schema.row_keys)]


def make_row(schema: Schema, key: int, sort_key: int, value: int) -> Row:
    return (*make_key(schema, key), sort_key, value, value * 1_000_000)


def make_lookup(schema: Schema, keys: Sequence[int], **more: object) -> Query:
    regions = tuple(key_region(schema, make_key(schema, key)) for key in keys)
    return Query(regions, **more)  # type: ignore[arg-type]


processings = st.sampled_from(
    [
        NO_PROCESSING,
        Processing(parse_filters("ageOff(t,2)"), ()),
        Processing((), parse_aggregations("sum(v),max(t)")),
    ]
)
columns = st.sampled_from([None, ("v",), ("v", "k"), ("s", "v", "t", "k")])


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([ONE, TWO]), st.data())
def test_each_lookup_gets_the_rows_that_it_gets_alone(schema: Schema, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        table = DataTable(Path(name), schema, split_points=["k2"])
        engine = make_engine(Path(name))
        for _ in range(data.draw(st.integers(1, 3))):
            drawn = data.draw(st.lists(st.tuples(small, small, small), min_size=1, max_size=8))
            table.add_rows([make_row(schema, *each) for each in drawn])
        if data.draw(st.booleans()):
            region = key_region(schema, make_key(schema, data.draw(small)))
            table.store.commit_or_raise(DeleteRows((region,), id="d"))
        queries = data.draw(
            st.lists(
                st.builds(
                    make_lookup,
                    st.just(schema),
                    st.lists(st.integers(0, 6), min_size=1, max_size=4),
                    limit=st.none() | st.integers(0, 5),
                ),
                min_size=1,
                max_size=6,
            )
        )
        chosen, processing = data.draw(columns), data.draw(processings)
        queries = [replace(q, columns=chosen, processing=processing, now_ms=3000) for q in queries]
        expected = [run_query(q, table.query_table, engine).read_all() for q in queries]
        shared = read_together(queries, table.query_table, engine)
        assert shared is not None
        for query, rows in zip(queries, expected, strict=True):
            assert is_lookup(query)
            result = shared.result(shared.spans_of(query)).read_all()
            assert result.schema == rows.schema
            assert list_rows(result) == list_rows(rows)
        table.close()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[DataTable]:
    table = DataTable(tmp_path, ONE)
    table.add_rows([make_row(ONE, key, 0, key) for key in range(5)])
    yield table
    table.close()


@pytest.fixture
def engine(tmp_path: Path) -> QueryEngine:
    return make_engine(tmp_path)


class Callers:
    """Threads whose lookups wait while two others run, and are then answered together."""

    def __init__(self, table: DataTable, engine: QueryEngine) -> None:
        self.table, self.engine = table, engine
        self.opened = 0
        self._may_run = threading.Event()
        self._threads = ThreadPoolExecutor(20)
        self._first: list[Future[list[Row]]] = []
        for _ in range(2):
            self._first.append(self._threads.submit(self._ask, make_lookup(ONE, [0]), None))
            self._wait_until(lambda: self.opened == len(self._first))

    def ask(self, query: Query, limit: TimeLimit | None = None, group: str = "caller"):
        before = self._waiting() + self.opened
        asked = self._threads.submit(self._ask, query, limit, group)
        self._wait_until(lambda: self._waiting() + self.opened > before or asked.done())
        return asked

    def let_run(self) -> None:
        self._may_run.set()
        for each in self._first:
            each.result(WAIT_SECONDS)

    def _ask(self, query: Query, limit: TimeLimit | None, group: str = "caller") -> list[Row]:
        return list_rows(open_lookup(query, group, self._open, self.engine, limit).read_all())

    def _open(self):
        self.opened += 1
        assert self._may_run.wait(WAIT_SECONDS)
        return self.table.query_table

    def _waiting(self) -> int:
        return sum(len(group.waiting) for group in self.engine.sharing._groups.values())

    def _wait_until(self, condition) -> None:
        turn = threading.Event()
        while not condition():
            turn.wait(0.001)


@pytest.fixture
def callers(table: DataTable, engine: QueryEngine) -> Iterator[Callers]:
    callers = Callers(table, engine)
    yield callers
    callers.let_run()


def keys_of(rows: list[Row]) -> list[str]:
    return [each[0] for each in rows]


def test_lookups_that_wait_open_the_table_once(callers: Callers) -> None:
    asked = [callers.ask(make_lookup(ONE, [key, 9])) for key in range(5)]
    callers.let_run()
    assert [keys_of(each.result(WAIT_SECONDS)) for each in asked] == [[f"k{n}"] for n in range(5)]
    assert callers.opened == 3


def test_lookups_of_other_callers_and_columns_are_not_shared(callers: Callers) -> None:
    queries = [make_lookup(ONE, [1]), make_lookup(ONE, [1], columns=("v",))]
    assert lookup_group(queries[0]) != lookup_group(queries[1])
    asked = [callers.ask(queries[0]), callers.ask(queries[0], group="another caller")]
    callers.let_run()
    assert [keys_of(each.result(WAIT_SECONDS)) for each in asked] == [["k1"], ["k1"]]
    assert callers.opened == 4


def test_an_error_of_one_lookup_does_not_reach_the_others(callers: Callers) -> None:
    wrong = Query((key_region(TWO, ("k1", 1)),))
    asked = [callers.ask(make_lookup(ONE, [1])), callers.ask(wrong)]
    asked.append(callers.ask(make_lookup(ONE, [2])))
    callers.let_run()
    assert keys_of(asked[0].result(WAIT_SECONDS)) == ["k1"]
    assert keys_of(asked[2].result(WAIT_SECONDS)) == ["k2"]
    with pytest.raises(InvalidRequestError, match="a region has 2 ranges"):
        asked[1].result(WAIT_SECONDS)


def test_a_caller_that_gives_up_does_not_cancel_the_others(callers: Callers) -> None:
    stop = threading.Event()
    limit = TimeLimit(stop_event=stop)
    asked = [callers.ask(make_lookup(ONE, [1]), limit), callers.ask(make_lookup(ONE, [2]))]
    stop.set()
    with pytest.raises(InvalidRequestError, match="cancelled"):
        asked[0].result(WAIT_SECONDS)
    callers.let_run()
    assert keys_of(asked[1].result(WAIT_SECONDS)) == ["k2"]


def test_a_failure_of_the_shared_query_makes_each_caller_run_alone(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [callers.ask(make_lookup(ONE, [key])) for key in range(3)]

    def fail(*_: object) -> None:
        raise DataError("damaged")

    monkeypatch.setattr(lookups, "read_together", fail)
    callers.let_run()
    assert [keys_of(each.result(WAIT_SECONDS)) for each in asked] == [["k0"], ["k1"], ["k2"]]
    assert callers.opened == 2 + 1 + 3


def test_large_results_are_read_alone(
    table: DataTable, engine: QueryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [make_lookup(ONE, [1]), make_lookup(ONE, [2])]
    monkeypatch.setattr(lookups, "_ROWS_MAX", 1)
    assert read_together(queries, table.query_table, engine) is None
    assert read_together(queries[:1], table.query_table, engine) is not None


def test_lookups_of_absent_keys_are_shared(table: DataTable, engine: QueryEngine) -> None:
    shared = read_together([make_lookup(ONE, [9])], table.query_table, engine)
    assert shared is not None
    assert (shared.spans, shared.rows.num_rows) == ({}, 0)


def test_queries_that_are_no_lookups(table: DataTable, engine: QueryEngine) -> None:
    lookup = make_lookup(ONE, [1])
    assert is_lookup(lookup)
    assert not is_lookup(Query())
    assert not is_lookup(Query(()))
    assert not is_lookup(replace(lookup, version=1))
    assert not is_lookup(Query((make_range_region(ONE, "a", "b"),)))
    assert not is_lookup(make_lookup(ONE, range(100)))
    assert not is_lookup(replace(lookup, columns=()))
    iterator = IteratorCall("name", "")
    assert not is_lookup(replace(lookup, processing=Processing(iterator=iterator)))
    restricted = replace(table.query_table, restriction=Restriction(iterator=iterator))
    assert read_together([lookup], restricted, engine) is None
