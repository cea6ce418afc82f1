"""Contract of query trackers."""

import threading
from dataclasses import replace

import pytest

from sleeper.errors import NotFoundError
from sleeper.jobs.query_tracker import QueryIdTakenError, QueryPin, QueryRecords, QueryState
from tests.contracts.conftest import Store

PIN = QueryPin("print", "0123abcd", 7, 1000, "m1")
QUEUED, RUNNING = QueryState.QUEUED, QueryState.IN_PROGRESS
COMPLETED, FAILED = QueryState.COMPLETED, QueryState.FAILED
PARTIALLY_FAILED = QueryState.PARTIALLY_FAILED

Tracked = Store[QueryRecords]


def state(tracker: QueryRecords, query_id: str = "q") -> QueryState:
    return tracker.query(query_id).state


def make_query(query_tracker: Tracked, *subqueries: str) -> QueryRecords:
    tracker = query_tracker.port
    tracker.begin("q", PIN)
    tracker.plan("q", subqueries, "m1")
    return tracker


def test_a_query_is_queued_in_progress_and_completed(query_tracker: Tracked):
    tracker = query_tracker.port
    assert tracker.begin("q", PIN) == PIN
    assert state(tracker) is QUEUED
    tracker.plan("q", ["a", "b"], "m1")
    assert state(tracker) is RUNNING
    assert [s.state for s in tracker.subqueries("q")] == [QUEUED, QUEUED]
    assert tracker.start("q", "a", "m1")
    assert [s.state for s in tracker.subqueries("q")] == [RUNNING, QUEUED]
    assert tracker.finish("q", "a", 3, run="m1") is None
    assert tracker.start("q", "b", "m1")
    results = tracker.finish("q", "b", 4, run="m1")
    assert results is not None
    assert (results.state, results.row_count, results.table_id) == (COMPLETED, 7, "0123abcd")
    assert [s.row_count for s in tracker.subqueries("q")] == [3, 4]
    assert query_tracker.again().query("q") == results


def test_the_first_pin_is_kept(query_tracker: Tracked):
    tracker = query_tracker.port
    tracker.begin("q", PIN)
    assert query_tracker.again().begin("q", QueryPin("print", "0123abcd", 9, 2000, "m1")) == PIN


def test_a_subquery_that_exceeds_the_query_s_rows_fails(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a", "b", "c")
    assert tracker.finish("q", "a", 6, rows_max=10, run="m1") is None
    assert tracker.finish("q", "b", 5, rows_max=10, run="m1") is None
    results = tracker.finish("q", "c", 4, rows_max=10, run="m1")
    assert results is not None
    assert (results.state, results.row_count) == (PARTIALLY_FAILED, 10)
    assert "more than 10 rows in all its parts" in (results.error or "")
    assert [s.state for s in tracker.subqueries("q")] == [COMPLETED, FAILED, COMPLETED]
    assert tracker.finish("q", "b", 5, rows_max=10, run="m1") is None
    assert tracker.finish("forgotten", "a", 50, rows_max=10) is None


def test_an_id_is_refused_for_another_query(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a")
    with pytest.raises(QueryIdTakenError, match="'q' belongs to another query"):
        tracker.begin("q", QueryPin("other", "0123abcd", 9, 2000, "m2"))
    with pytest.raises(QueryIdTakenError, match="'q' belongs to another query"):
        tracker.fail("q", "other", "no", "m2")
    assert (state(tracker), tracker.query("q").error) == (RUNNING, None)


NEXT = QueryPin("other", "0123abcd", 9, 2000, "m2")


def test_an_id_whose_query_is_finished_starts_over(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a", "b")
    tracker.finish("q", "a", 3, "bad", run="m1")
    tracker.finish("q", "b", 3, run="m1")
    query_tracker.clock.pass_seconds(10)
    assert tracker.begin("q", NEXT) == replace(NEXT, replaces=True)
    status = tracker.query("q")
    assert (status.state, status.row_count, status.error) == (QUEUED, 0, None)
    assert tracker.subqueries("q") == ()
    assert (tracker.is_newest("q", "m1"), tracker.is_newest("q", "m2")) == (False, True)
    tracker.plan("q", ["c"], "m2")
    assert [s.sub_query_id for s in tracker.subqueries("q")] == ["c"]
    assert tracker.start("q", "c", "m2")
    ended = tracker.finish("q", "c", 5, run="m2")
    assert ended is not None
    assert (ended.state, ended.row_count, ended.error) == (COMPLETED, 5, None)
    assert query_tracker.again().recent() == (ended,)


def test_the_same_query_starts_over_for_another_message(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a")
    tracker.finish("q", "a", 3, run="m1")
    assert tracker.begin("q", replace(PIN, run="m2")) is not None
    assert (state(tracker), tracker.query("q").row_count) == (QUEUED, 0)


def test_the_same_query_joins_an_unfinished_one(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a")
    assert tracker.begin("q", QueryPin("print", "0123abcd", 9, 2000, "m2")) == PIN
    tracker.finish("q", "a", 3, run="m1")
    assert tracker.begin("q", replace(PIN, run="m2")) is None
    assert tracker.query("q").row_count == 3


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_redelivery_of_an_earlier_query_changes_nothing(query_tracker: Tracked, is_finished):
    tracker = make_query(query_tracker)
    tracker.begin("q", NEXT)
    tracker.plan("q", ["c"], "m2")
    if is_finished:
        tracker.finish("q", "c", 5, run="m2")
    before = tracker.query("q")
    for _ in range(3):
        assert tracker.begin("q", PIN) is None
        assert tracker.fail("q", "print", "late", "m1") is None
    assert tracker.query("q") == before


def test_late_workers_of_an_earlier_query_change_nothing(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a")
    tracker.finish("q", "a", 3, run="m1")
    tracker.begin("q", NEXT)
    tracker.plan("q", ["c"], "m2")
    before = tracker.query("q")
    late = query_tracker.again()
    late.plan("q", ["a"], "m1")
    assert not late.start("q", "a", "m1")
    assert late.finish("q", "a", 3, run="m1") is None
    assert late.finish("q", "a", 3, rows_max=1, run="m1") is None
    assert tracker.query("q") == before
    assert [s.sub_query_id for s in tracker.subqueries("q")] == ["c"]
    tracker.finish("q", "c", 5, run="m2")
    assert late.finish("q", "a", 0, "bad", run="m1") is None
    assert (state(tracker), tracker.query("q").row_count) == (COMPLETED, 5)


def test_an_invalid_query_replaces_a_finished_one(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a")
    tracker.finish("q", "a", 3, run="m1")
    failed = tracker.fail("q", "other", "no such table", "m2")
    assert failed is not None
    assert (failed.state, failed.row_count, failed.table_id) == (FAILED, 0, None)
    assert tracker.query("q") == failed
    assert tracker.subqueries("q") == ()
    assert tracker.fail("q", "other", "no such table", "m2") is None
    assert tracker.begin("q", NEXT) is None


@pytest.mark.usefixtures("parallel_server")
def test_of_concurrent_messages_one_starts_the_id_over(query_tracker: Tracked):
    tracker = make_query(query_tracker)
    results: list[object] = []

    def begin(number: int, own: QueryRecords) -> None:
        try:
            results.append(own.begin("q", QueryPin(f"p{number}", "0123abcd", 9, 1, f"n{number}")))
        except QueryIdTakenError:
            results.append(None)

    threads = [
        threading.Thread(target=begin, args=(number, query_tracker.again())) for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (pin,) = [item for item in results if item is not None]
    assert isinstance(pin, QueryPin)
    assert len(results) == 6
    assert tracker.is_newest("q", pin.run)


def test_no_subqueries_complete_a_query(query_tracker: Tracked):
    tracker = make_query(query_tracker)
    assert (state(tracker), tracker.query("q").row_count) == (COMPLETED, 0)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((None, None), COMPLETED),
        (("bad", None), PARTIALLY_FAILED),
        (("bad", "worse"), FAILED),
    ],
)
def test_the_state_of_a_query_follows_from_its_subqueries(query_tracker: Tracked, errors, expected):
    tracker = make_query(query_tracker, "a", "b")
    for sub_query_id, error in zip("ab", errors, strict=True):
        results = tracker.finish("q", sub_query_id, 0 if error else 5, error, run="m1")
    assert results is not None
    assert (results.state, results.error) == (expected, errors[0])
    assert [s.error for s in tracker.subqueries("q")] == list(errors)
    assert state(tracker) is expected


def test_a_repeated_subquery_is_counted_once(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a", "b")
    assert tracker.finish("q", "a", 3, run="m1") is None
    assert not tracker.start("q", "a", "m1")
    assert tracker.finish("q", "a", 3, "late", run="m1") is None
    assert state(tracker) is RUNNING
    results = tracker.finish("q", "b", 1, run="m1")
    assert results is not None
    assert results.row_count == 4
    assert tracker.finish("q", "b", 1, run="m1") is None


def test_a_finished_query_stays_finished(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a")
    tracker.finish("q", "a", 3, run="m1")
    assert tracker.begin("q", PIN) is None
    tracker.plan("q", ["a"], "m1")
    assert tracker.fail("q", "print", "no", "m1") is None
    assert (state(tracker), tracker.query("q").row_count) == (COMPLETED, 3)
    assert [s.state for s in tracker.subqueries("q")] == [COMPLETED]


def test_repeated_planning_keeps_finished_subqueries(query_tracker: Tracked):
    tracker = make_query(query_tracker, "a", "b")
    tracker.finish("q", "a", 3, run="m1")
    query_tracker.again().plan("q", ["a", "b"], "m1")
    assert [s.state for s in tracker.subqueries("q")] == [COMPLETED, QUEUED]
    results = tracker.finish("q", "b", 4, run="m1")
    assert results is not None
    assert results.row_count == 7


def test_an_invalid_query_fails_once_with_its_reason(query_tracker: Tracked):
    tracker = query_tracker.port
    failed = tracker.fail("q", "print", "no such table", "m1")
    assert failed is not None
    assert (failed.state, failed.error) == (FAILED, "no such table")
    assert tracker.fail("q", "print", "again", "m1") is None
    assert tracker.query("q").error == "no such table"
    assert tracker.begin("q", PIN) is None


def test_a_query_fails_while_it_is_planned(query_tracker: Tracked):
    tracker = query_tracker.port
    tracker.begin("q", PIN)
    assert tracker.fail("q", "print", "too large", "m1") is not None
    tracker.plan("q", ["a"], "m1")
    assert (state(tracker), tracker.query("q").error) == (FAILED, "too large")


def test_an_unknown_query_is_not_found(query_tracker: Tracked):
    with pytest.raises(NotFoundError, match="query 'q' does not exist"):
        query_tracker.port.query("q")
    assert query_tracker.port.finish("q", "a", 1, run="m1") is None


def test_recent_queries_are_newest_first_and_old_ones_are_removed(query_tracker: Tracked):
    tracker = query_tracker.port
    for query_id in ("one", "two", "three"):
        query_tracker.clock.pass_seconds(10)
        tracker.begin(query_id, PIN)
        tracker.plan(query_id, ["a"], "m1")
    query_tracker.clock.pass_seconds(10)
    tracker.fail("four", "print", "no", "m1")
    assert [q.query_id for q in tracker.recent(3)] == ["four", "three", "two"]
    assert tracker.remove_before(query_tracker.clock() - 5_000) == 3
    assert [q.query_id for q in tracker.recent()] == ["four"]
    assert query_tracker.list_stored() == [("four", "-", "FAILED")]


@pytest.mark.usefixtures("parallel_server")
def test_concurrent_ends_of_subqueries_end_the_query_once(query_tracker: Tracked):
    ids = [f"s{number:02}" for number in range(24)]
    make_query(query_tracker, *ids)
    results, trackers = [], [query_tracker.again() for _ in range(4)]

    def run(tracker: QueryRecords, mine: list[str]) -> None:
        for entry in mine:
            tracker.start("q", entry, "m1")
            results.append(tracker.finish("q", entry, 1, run="m1"))

    threads = [
        threading.Thread(target=run, args=(tracker, ids[number % 4 :: 4]))
        for number, tracker in enumerate([*trackers, *trackers])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (status,) = [item for item in results if item is not None]
    assert (status.state, status.row_count) == (COMPLETED, 24)


@pytest.mark.usefixtures("parallel_server")
def test_planning_hundreds_of_subqueries_keeps_existing_ones(query_tracker: Tracked):
    ids = [f"s{number:03}" for number in range(250)]
    tracker = make_query(query_tracker, *ids[::50])
    tracker.plan("q", ids, "m1")
    assert [s.sub_query_id for s in tracker.subqueries("q")] == ids
