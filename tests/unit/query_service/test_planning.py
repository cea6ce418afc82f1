"""Subqueries: one for each leaf, deterministic, each within a message's size."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.jobs.query_tracker import QueryPin
from sleeper.processing.restriction import NO_RESTRICTION
from sleeper.query.messages.destination import DestinationKind, ResultsDestination
from sleeper.query.messages.leaf import make_leaf_query, parse_leaf_query_message
from sleeper.query.messages.query import QueryMessage, make_query
from sleeper.query_service.plan import PlannedQuery, Subquery, plan_subqueries
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.examples import examples
from tests.tables.data_table import DataTable, make_engine

SCHEMA = Schema((Field("k", PrimitiveType.LONG),), values=(Field("v", PrimitiveType.LONG),))
TWO = Schema(
    (Field("k", PrimitiveType.LONG), Field("s", PrimitiveType.STRING)),
    values=(Field("v", PrimitiveType.LONG),),
)


def plan(
    table: DataTable, regions: list[dict], bytes_max: int = 10**6, to_queue: bool = False
) -> list[Subquery]:
    results = ResultsDestination(DestinationKind.SQS, queue_url="u") if to_queue else None
    message = QueryMessage(
        "q", tuple(regions), table_name="t", results=results or ResultsDestination()
    )
    with table.store.reading() as state:
        pin = QueryPin("p", "0123abcd", state.version, 7)
        plans = PlannedQuery(message, make_query(message, table.schema), pin, NO_RESTRICTION)
        return plan_subqueries(plans, table.schema, state, bytes_max)


@pytest.fixture
def table(tmp_path: Path) -> DataTable:
    maker = DataTable(tmp_path, SCHEMA, split_points=[100, 200])
    maker.add_rows([(key, key) for key in range(0, 300, 10)])
    return maker


def keys(*values: int) -> list[dict]:
    return [{"k": {"min": key, "max": key, "maxInclusive": True}} for key in values]


def test_each_leaf_that_may_have_rows_has_a_subquery(table: DataTable):
    result = plan(table, [{"k": {"min": 50, "max": 150}}])
    assert len(result) == 2
    assert [len(item.message.query.regions) for item in result] == [1, 1]
    assert plan(table, [{"k": {"min": 1000, "max": None}}]) == []
    assert plan(table, []) == []


def test_subqueries_are_deterministic(table: DataTable):
    assert plan(table, [{}]) == plan(table, [{}])
    ids = {item.message.sub_query_id for item in plan(table, [{}])}
    assert len(ids) == 3
    assert all(len(item) == 32 for item in ids)


def test_a_results_queue_gets_a_message_even_if_no_leaf_matches(table: DataTable):
    (only,) = plan(table, [], to_queue=True)
    assert make_leaf_query(only.message, SCHEMA).regions == ()


def test_regions_that_exceed_a_message_are_divided(table: DataTable):
    expected = list(range(0, 100, 2))
    result = plan(table, keys(*expected), bytes_max=1500)
    assert len(result) > 2
    assert len({item.message.sub_query_id for item in result}) == len(result)
    assert all(len(item.body.encode()) <= 1500 for item in result)
    regions = [r for item in result for r in make_leaf_query(item.message, SCHEMA).regions]
    assert sorted(r.ranges[0].min for r in regions) == expected


def test_overlapping_regions_are_not_divided(tmp_path: Path):
    table = DataTable(tmp_path, TWO)
    table.add_rows([(1, "a", 1)])
    expected = [
        {"k": {"min": low, "max": 1000}, "s": {"min": "", "max": None}} for low in range(50)
    ]
    with pytest.raises(InvalidRequestError, match="50 regions in leaf root do not fit"):
        plan(table, expected, bytes_max=1500)


def test_a_message_lists_only_few_files(table: DataTable):
    (first, *_) = plan(table, [{}])
    assert len(json.loads(first.body)["files"]) == 1
    for number in range(400):
        table.add_rows([(0, number)])
    (first, *_) = plan(table, [{}])
    assert json.loads(first.body)["files"] == []


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(st.integers(-5, 310), st.integers(0, 90)), max_size=6))
def test_subqueries_return_each_row_once(table: DataTable, tmp_path: Path, ranges):
    from sleeper.query.run import run_query

    regions = [{"k": {"min": low, "max": low + length + 1}} for low, length in ranges]
    engine = make_engine(tmp_path, threads=1)
    results: list[int] = []
    for item in plan(table, regions, bytes_max=600):
        query = make_leaf_query(parse_leaf_query_message(item.body), SCHEMA)
        results += run_query(query, table.query_table, engine).read_all().column("k").to_pylist()
    expected = {k for k in range(0, 300, 10) if any(a <= k <= a + n for a, n in ranges)}
    assert sorted(results) == sorted(expected)
