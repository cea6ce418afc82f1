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
from tests.tables.data_table import DataTable, make_engine

SCHEMA = Schema((Field("k", PrimitiveType.LONG),), values=(Field("v", PrimitiveType.LONG),))
TWO = Schema(
    (Field("k", PrimitiveType.LONG), Field("s", PrimitiveType.STRING)),
    values=(Field("v", PrimitiveType.LONG),),
)


def plan(
    made: DataTable, regions: list[dict], bytes_max: int = 10**6, to_queue: bool = False
) -> list[Subquery]:
    results = ResultsDestination(DestinationKind.SQS, queue_url="u") if to_queue else None
    message = QueryMessage(
        "q", tuple(regions), table_name="t", results=results or ResultsDestination()
    )
    with made.store.reading() as state:
        pin = QueryPin("p", "0123abcd", state.version, 7)
        planned = PlannedQuery(message, make_query(message, made.schema), pin, NO_RESTRICTION)
        return plan_subqueries(planned, made.schema, state, bytes_max)


@pytest.fixture
def made(tmp_path: Path) -> DataTable:
    maker = DataTable(tmp_path, SCHEMA, split_points=[100, 200])
    maker.add_rows([(key, key) for key in range(0, 300, 10)])
    return maker


def keys(*values: int) -> list[dict]:
    return [{"k": {"min": key, "max": key, "maxInclusive": True}} for key in values]


def test_each_leaf_that_may_have_rows_has_a_subquery(made: DataTable):
    found = plan(made, [{"k": {"min": 50, "max": 150}}])
    assert len(found) == 2
    assert [len(each.message.query.regions) for each in found] == [1, 1]
    assert plan(made, [{"k": {"min": 1000, "max": None}}]) == []
    assert plan(made, []) == []


def test_subqueries_are_deterministic(made: DataTable):
    assert plan(made, [{}]) == plan(made, [{}])
    ids = {each.message.sub_query_id for each in plan(made, [{}])}
    assert len(ids) == 3
    assert all(len(each) == 32 for each in ids)


def test_a_results_queue_gets_a_message_even_if_no_leaf_matches(made: DataTable):
    (only,) = plan(made, [], to_queue=True)
    assert make_leaf_query(only.message, SCHEMA).regions == ()


def test_regions_that_exceed_a_message_are_divided(made: DataTable):
    wanted = list(range(0, 100, 2))
    found = plan(made, keys(*wanted), bytes_max=1500)
    assert len(found) > 2
    assert len({each.message.sub_query_id for each in found}) == len(found)
    assert all(len(each.body.encode()) <= 1500 for each in found)
    regions = [r for each in found for r in make_leaf_query(each.message, SCHEMA).regions]
    assert sorted(r.ranges[0].min for r in regions) == wanted


def test_overlapping_regions_are_not_divided(tmp_path: Path):
    made = DataTable(tmp_path, TWO)
    made.add_rows([(1, "a", 1)])
    wanted = [{"k": {"min": low, "max": 1000}, "s": {"min": "", "max": None}} for low in range(50)]
    with pytest.raises(InvalidRequestError, match="50 regions in leaf root do not fit"):
        plan(made, wanted, bytes_max=1500)


def test_a_message_lists_only_few_files(made: DataTable):
    (first, *_) = plan(made, [{}])
    assert len(json.loads(first.body)["files"]) == 1
    for number in range(400):
        made.add_rows([(0, number)])
    (first, *_) = plan(made, [{}])
    assert json.loads(first.body)["files"] == []


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(-5, 310), st.integers(0, 90)), max_size=6))
def test_subqueries_return_each_row_once(made: DataTable, tmp_path: Path, ranges):
    from sleeper.query.run import run_query

    regions = [{"k": {"min": low, "max": low + length + 1}} for low, length in ranges]
    engine = make_engine(tmp_path, threads=1)
    found: list[int] = []
    for each in plan(made, regions, bytes_max=600):
        query = make_leaf_query(parse_leaf_query_message(each.body), SCHEMA)
        found += run_query(query, made.query_table, engine).read_all().column("k").to_pylist()
    wanted = {k for k in range(0, 300, 10) if any(a <= k <= a + n for a, n in ranges)}
    assert sorted(found) == sorted(wanted)
