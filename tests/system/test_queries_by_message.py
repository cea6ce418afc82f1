"""Queries sent to a folder's instance as messages, run by its workers, read where they went."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.admin.schema import change_schema
from sleeper.admin.tables import create_table
from sleeper.clock import iso_time
from sleeper.deletion.keys import delete_rows
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.service import ingest_paths
from sleeper.instance import Instance
from sleeper.jobs.event import new_task_id
from sleeper.jobs.query_tracker import QueryIdTakenError, QueryState, QueryStatus
from sleeper.jobs.queue import QueueName
from sleeper.local.queue import LocalResultsQueue
from sleeper.partitions.region import whole_region
from sleeper.processing.field_changes import AddField
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.request import Query
from sleeper.query.rows.output import write_client_parquet
from sleeper.query.service import open_query, read_schema
from sleeper.query.sql.service import open_sql
from sleeper.query_service.run import run_leaf_query_message, run_subquery
from sleeper.query_service.service import plan_query_message, run_query_message, show_query
from sleeper.schema.model import Field, PrimitiveType
from sleeper.statestore.holds import Hold
from sleeper.workers.worker import Worker
from tests.ports import with_ports

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "IntType"}],
    "sortKeyFields": [{"name": "at", "type": "LongType"}],
    "valueFields": [
        {"name": "label", "type": "StringType"},
        {"name": "v", "type": "LongType", "nullable": True},
    ],
}
ALL_KEYS: dict[str, Any] = {"k": {"min": None, "max": None}}


@pytest.fixture
def table(instance: Instance, tmp_path: Path) -> str:
    """Keys 0 to 99 over four leaves; every tenth is secret."""
    create_table(instance, "t", json.dumps(SCHEMA), split_points=[25, 50, 75])
    put_rows(instance, tmp_path, range(100))
    return "t"


def put_rows(instance: Instance, folder: Path, keys: range) -> None:
    rows = {
        "k": pa.array(keys, pa.int32()),
        "at": [0] * len(keys),
        "label": ["secret" if k % 10 == 0 else "" for k in keys],
        "v": [None if k % 7 == 0 else k * 2 for k in keys],
    }
    path = folder / f"rows-{keys.start}.parquet"
    pq.write_table(pa.table(rows), path)
    ingest_paths(instance, "t", [str(path)])


def body(query_id: str, **members: Any) -> str:
    raw = {
        "type": "Query",
        "queryId": query_id,
        "tableName": "t",
        "regions": [ALL_KEYS],
        **members,
    }
    return json.dumps(raw)


def send(instance: Instance, query_id: str, **members: Any) -> None:
    instance.jobs.queue(QueueName.QUERY).send(body(query_id, **members))


def work(instance: Instance) -> None:
    """All that is on the queues."""
    worker = Worker(instance, new_task_id(), threading.Event())
    while worker.run_one():
        pass


def ask(instance: Instance, query_id: str, **members: Any) -> QueryStatus:
    send(instance, query_id, **members)
    work(instance)
    return instance.queries.tracker().query(query_id)


def results(instance: Instance, query_id: str) -> list[Path]:
    folder = Path(instance.queries.results_root(None).url_of(f"query-{query_id}"))
    return sorted(folder.glob("*.parquet")) if folder.exists() else []


def rows(instance: Instance, query_id: str) -> list[dict[str, Any]]:
    tables = [pq.read_table(path) for path in results(instance, query_id)]
    for entry in tables:
        keys = entry.column("k").to_pylist()
        assert keys == sorted(keys)
    return sorted((row for item in tables for row in item.to_pylist()), key=lambda r: r["k"])


def holds(instance: Instance) -> list[Hold]:
    return list(instance.table("t").state.holds.all())


def messages(instance: Instance, url: str) -> Iterator[dict[str, Any]]:
    queue = instance.queries.results_queue(url)
    assert isinstance(queue, LocalResultsQueue)
    while responses := queue.queue.receive(10):
        for message in responses:
            yield json.loads(message.body)
            queue.queue.delete(message.receipt)


def test_a_query_over_all_leaves_has_a_file_for_each_in_the_results_folder(instance, table):
    status = ask(instance, "q1")
    assert (status.state, status.row_count) == (QueryState.COMPLETED, 100)
    subqueries = instance.queries.tracker().subqueries("q1")
    assert {f"{s.sub_query_id}.parquet" for s in subqueries} == {
        path.name for path in results(instance, "q1")
    }
    assert len(subqueries) == 4
    assert [row["k"] for row in rows(instance, "q1")] == list(range(100))
    assert rows(instance, "q1")[8] == {"k": 8, "at": 0, "label": "", "v": 16}
    assert holds(instance) == []


def test_a_query_over_one_leaf_runs_in_the_planner(instance, table):
    send(instance, "q1", regions=[{"k": {"min": 3, "max": 5}}])
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    assert run_query_message(instance, message) == 2
    assert instance.queries.tracker().query("q1").state is QueryState.COMPLETED
    assert [row["k"] for row in rows(instance, "q1")] == [3, 4]
    assert instance.jobs.queue(QueueName.LEAF_QUERY).counts().unfinished == 0


def test_only_the_requested_value_fields_are_written(instance, table):
    ask(instance, "q1", requestedValueFields=["v"], regions=[{"k": {"min": 7, "max": 9}}])
    assert rows(instance, "q1") == [{"k": 7, "at": 0, "v": None}, {"k": 8, "at": 0, "v": 16}]


def test_an_iterator_of_the_query_is_applied(instance, table):
    environment = {
        "queryTimeIteratorClassName": "sleeper.core.iterator.impl.RowSecurity",
        "queryTimeIteratorConfig": "label",
    }
    assert ask(instance, "q1", **environment).row_count == 90


def test_filters_and_aggregations_of_the_query_are_applied(instance, table, tmp_path):
    assert ask(instance, "q1", queryTimeFilters="ageOff(at,1)").row_count == 0
    assert ask(instance, "q2", queryTimeFilters=f"ageOff(at,{2**62})").row_count == 100
    put_rows(instance, tmp_path, range(100))
    combined = ask(instance, "q3", queryTimeAggregations="min(label),sum(v)", regions=[ALL_KEYS])
    assert combined.row_count == 100
    ask(
        instance,
        "q4",
        queryTimeAggregations="min(label),sum(v)",
        regions=[{"k": {"min": 8, "max": 9}}],
    )
    assert [(row["k"], row["v"]) for row in rows(instance, "q4")] == [(8, 32)]


def test_no_matching_leaf_completes_a_query_with_no_rows(instance, table):
    empty = {"k": {"min": 9, "max": 9}}
    far = {"k": {"min": 1000, "max": None}}
    for query_id, regions in [("q1", []), ("q2", [far]), ("q3", [empty]), ("q4", [empty, far])]:
        status = ask(instance, query_id, regions=regions)
        assert (status.state, status.row_count) == (QueryState.COMPLETED, 0)


def test_results_are_discarded_on_request(instance, table):
    status = ask(instance, "q1", resultsPublisherConfig={"destination": "NoResultsOutput"})
    assert (status.state, status.row_count) == (QueryState.COMPLETED, 100)
    assert results(instance, "q1") == []


def test_result_messages_are_numbered_and_the_last_of_a_subquery_has_the_count(instance, table):
    to_queue = {"destination": "SQS", "sqsResultsUrl": "mine", "batchSize": 10}
    ask(instance, "q1", resultsPublisherConfig=to_queue, requestedValueFields=["v"])
    responses = list(messages(instance, "mine"))
    assert {m["queryId"] for m in responses} == {"q1"}
    assert [f["name"] for f in responses[0]["schema"]["valueFields"]] == ["v"]
    result = [row for message in responses for row in message["rows"]]
    assert sorted(row["k"] for row in result) == list(range(100))
    assert {"k": 7, "at": 0, "v": None} in result
    for subquery in instance.queries.tracker().subqueries("q1"):
        mine = [m for m in responses if m["subQueryId"] == subquery.sub_query_id]
        assert [m["sequence"] for m in mine] == [1, 2, 3]
        assert [m.get("messages") for m in mine] == [None, None, 3]
        assert mine[-1]["rowCount"] == 25


def test_results_to_sqs_without_a_url_go_to_the_default_queue(instance, table):
    ask(instance, "q1", resultsPublisherConfig={"destination": "SQS"})
    queue = instance.queries.results_queue(None)
    bodies = [json.loads(message.body) for message in queue.queue.receive(10)]
    assert sum(len(item["rows"]) for item in bodies) == 100


@pytest.mark.parametrize(
    ("query_id", "folder"),
    [
        ("a b#c?é%:😀", "query-a b#c?é%:😀"),
        ("a/b c", "query-a/b c"),
        ("/a..b/...", "query-/a..b/..."),
        ("a%2Fb", "query-a%2Fb"),
    ],
)
def test_the_folder_of_results_has_the_id_as_it_is(instance, table, query_id, folder):
    assert ask(instance, query_id).state is QueryState.COMPLETED
    result = list((Path(instance.queries.results_root(None).url_of("")) / folder).glob("*.parquet"))
    assert len(result) == 4
    report, text = show_query(instance, query_id)
    assert report.query.row_count == 100
    assert (text or "").endswith(f"/{folder}")


@pytest.mark.parametrize("regions", [[], [{"k": {"min": 1000, "max": None}}]])
def test_an_empty_result_is_one_message_with_no_rows(instance, table, regions):
    to_queue = {"destination": "SQS", "sqsResultsUrl": "mine"}
    assert ask(instance, "q1", resultsPublisherConfig=to_queue, regions=regions).row_count == 0
    (message,) = messages(instance, "mine")
    assert (message["rows"], message["messages"], message["rowCount"]) == ([], 1, 0)


def test_duplicate_messages_do_not_duplicate_rows(instance, table):
    for _ in range(2):
        send(instance, "q1")
    queue = instance.jobs.queue(QueueName.QUERY)
    for message in queue.receive(10):
        run_query_message(instance, message)
    leaves = instance.jobs.queue(QueueName.LEAF_QUERY).receive(10)
    assert len(leaves) == 8
    for message in leaves:
        run_leaf_query_message(instance, message)
        run_leaf_query_message(instance, message)
    status = instance.queries.tracker().query("q1")
    assert (status.state, status.row_count) == (QueryState.COMPLETED, 100)
    assert [row["k"] for row in rows(instance, "q1")] == list(range(100))


def test_a_restarted_planner_uses_the_version_of_its_first_attempt(
    instance, table, tmp_path, monkeypatch
):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    with monkeypatch.context() as patch:
        patch.setattr(
            type(instance.jobs.queue(QueueName.LEAF_QUERY)),
            "send_all",
            make_raiser(UnavailableError("no")),
        )
        with pytest.raises(UnavailableError):
            plan_query_message(instance, message)
    records = instance.queries.tracker().subqueries("q1")
    put_rows(instance, tmp_path, range(100, 200))
    plan_query_message(instance, message)
    work(instance)
    assert [s.sub_query_id for s in instance.queries.tracker().subqueries("q1")] == [
        s.sub_query_id for s in records
    ]
    assert instance.queries.tracker().query("q1").row_count == 100


def test_a_redelivered_query_resumes_and_extends_its_hold(instance, table, clock, monkeypatch):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    with monkeypatch.context() as patch:
        patch.setattr(
            type(instance.jobs.queue(QueueName.LEAF_QUERY)),
            "send_all",
            make_raiser(UnavailableError("no")),
        )
        with pytest.raises(UnavailableError):
            plan_query_message(instance, message)
    (previous,) = holds(instance)
    # Long enough for another expiry.
    clock.now_ms += 2000_000
    plan_query_message(instance, message)
    (current,) = holds(instance)
    assert (current.id, current.version) == (previous.id, previous.version)
    assert current.expiry_ms > previous.expiry_ms
    work(instance)
    status = instance.queries.tracker().query("q1")
    assert (status.state, status.row_count, status.error) == (QueryState.COMPLETED, 100, None)


def test_a_query_reads_all_commits_before_its_arrival(instance, table, tmp_path):
    ask(instance, "q1")
    put_rows(instance, tmp_path, range(100, 150))
    assert ask(instance, "q2").row_count == 150


def test_a_query_reads_the_version_that_it_names(instance, table, clock, tmp_path):
    with instance.table("t").state.reading() as state:
        number, time_ms = state.number, state.version_time_ms
    clock.now_ms = time_ms + 7_200_000
    put_rows(instance, tmp_path, range(100, 150))
    delete_rows(instance, "t", [whole_region(read_schema(instance, "t"))])
    assert ask(instance, "q1", asOf=number).row_count == 100
    assert ask(instance, "q2", asOf=iso_time(time_ms)).row_count == 100
    assert ask(instance, "q3", asOf="1h").row_count == 100
    assert ask(instance, "q4", asOf=number + 1).row_count == 150
    assert ask(instance, "q5").row_count == 0
    changes = [AddField(Field("more", PrimitiveType.LONG, nullable=True))]
    change_schema(instance, "t", changes)
    ask(instance, "old", asOf=number, requestedValueFields=["v"])
    assert set(rows(instance, "old")[0]) == {"k", "at", "v"}
    refused = ask(instance, "none", asOf=number, requestedValueFields=["more"])
    assert "no value field 'more'" in refused.error
    status = ask(instance, "q6", asOf=number + 900)
    assert (status.state, status.row_count) == (QueryState.FAILED, 0)
    assert f"{number + 900}" in status.error


def test_the_version_is_held_until_the_last_subquery_ends(instance, table):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    plan_query_message(instance, message)
    (hold,) = holds(instance)
    assert "query q1" in hold.owner
    *most, last = instance.jobs.queue(QueueName.LEAF_QUERY).receive(10)
    for item in most:
        run_leaf_query_message(instance, item)
    assert len(holds(instance)) == 1
    run_leaf_query_message(instance, last)
    assert holds(instance) == []


def test_a_late_subquery_renews_the_hold(instance, table, clock):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    plan_query_message(instance, message)
    (previous,) = holds(instance)
    clock.now_ms += 2000_000
    first, *_ = instance.jobs.queue(QueueName.LEAF_QUERY).receive(10)
    run_leaf_query_message(instance, first)
    (current,) = holds(instance)
    assert current.expiry_ms > previous.expiry_ms


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"tableName": "nowhere"}, "no table is named 'nowhere'"),
        ({"regions": [{"k": {"mn": 9}}]}, "unknown member 'mn'"),
        ({"regions": [{"k": {"min": "a", "max": None}}]}, "field 'k'"),
        ({"regions": [{"x": {}}]}, "'x', which is not a row key field"),
        ({"regions": None}, '"regions" is None'),
        ({"requestedValueFields": ["w"]}, "no value field 'w'"),
        ({"queryTimeIteratorClassName": "Nothing"}, "'Nothing'"),
        (
            {"queryTimeIteratorClassName": "RowSecurity", "queryTimeIteratorConfig": "w,a"},
            "iterator 'RowSecurity'",
        ),
        ({"queryTimeFilters": "ageOff(w,1)"}, "'w'"),
        ({"queryTimeFilters": "ageOff(label,1)"}, "ageOff needs a LongType"),
        ({"queryTimeAggregations": "sum(label),sum(v)"}, "label"),
        ({"resultsPublisherConfig": {"destination": "FTP"}}, "'FTP'"),
        ({"resultsPublisherConfig": {"destination": "S3", "bucket": "b"}}, "bucket 'b'"),
        ({"type": "LeafPartitionQuery"}, "LeafPartitionQuery"),
        ({"sqlQuery": "SELECT * FROM query_results WHERE v > 5"}, "'sqlQuery' is not supported"),
    ],
)
def test_a_query_that_cannot_succeed_is_failed_with_its_reason(instance, table, members, reason):
    status = ask(instance, "q1", **members)
    assert status.state is QueryState.FAILED
    assert status.error is not None
    assert reason in status.error
    assert instance.jobs.queue(QueueName.QUERY).counts().unfinished == 0
    assert instance.jobs.queue(QueueName.LEAF_QUERY).counts().unfinished == 0
    assert holds(instance) == []


def test_an_invalid_query_fails_under_the_id_of_its_message(instance, table):
    message_id = instance.jobs.queue(QueueName.QUERY).send("nonsense")
    work(instance)
    status = instance.queries.tracker().query(message_id)
    assert (status.state, "not JSON" in (status.error or "")) == (QueryState.FAILED, True)


def test_the_id_of_a_running_query_is_refused_reported_and_a_dead_letter(instance, table, clock):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    plan_query_message(instance, message)
    instance.jobs.queue(QueueName.QUERY).delete(message.receipt)
    regions = [{"k": {"min": 3, "max": 5}}]
    message_id = instance.jobs.queue(QueueName.QUERY).send(body("q1", regions=regions))
    (refused,) = instance.jobs.queue(QueueName.QUERY).receive()
    with pytest.raises(QueryIdTakenError, match="'q1' belongs to another query that is not fin"):
        plan_query_message(instance, refused)
    # The first query ends before the retries of the second, which stays refused.
    for _ in range(10):
        clock.now_ms += 1000_000
        work(instance)
    first = instance.queries.tracker().query("q1")
    assert (first.state, first.row_count) == (QueryState.COMPLETED, 100)
    assert len(results(instance, "q1")) == 4
    refusals = instance.queries.tracker().query(message_id)
    assert refusals.state is QueryState.FAILED
    assert "query id 'q1' belongs to another query" in (refusals.error or "")
    assert instance.jobs.queue(QueueName.QUERY).counts().unfinished == 0
    (letter,) = instance.jobs.dead_letters(QueueName.QUERY).list()
    assert json.loads(letter.body)["regions"] == regions


def test_an_id_whose_query_has_ended_starts_over(instance, table):
    ask(instance, "q1")
    ask(instance, "q1/deeper")
    before = results(instance, "q1")
    status = ask(instance, "q1", regions=[{"k": {"min": 3, "max": 5}}])
    assert (status.state, status.row_count) == (QueryState.COMPLETED, 2)
    assert [row["k"] for row in rows(instance, "q1")] == [3, 4]
    assert set(before).isdisjoint(results(instance, "q1"))
    assert len(results(instance, "q1/deeper")) == 4
    assert len(instance.queries.tracker().subqueries("q1")) == 1
    assert holds(instance) == []


def test_an_invalid_query_replaces_the_results_of_its_id(instance, table):
    ask(instance, "q1")
    assert ask(instance, "q1", regions=None).state is QueryState.FAILED
    assert results(instance, "q1") == []
    assert ask(instance, "q1", regions=[]).state is QueryState.COMPLETED


def test_results_that_outlive_the_tracker_are_replaced(instance, table):
    ask(instance, "q1")
    instance.queries.tracker().remove_before(2**60)
    ask(instance, "q1", regions=[{"k": {"min": 3, "max": 5}}])
    assert [row["k"] for row in rows(instance, "q1")] == [3, 4]


def test_the_same_query_again_reads_the_newest_rows(instance, table, tmp_path):
    ask(instance, "q1")
    put_rows(instance, tmp_path, range(100, 110))
    assert ask(instance, "q1").row_count == 110
    assert len(rows(instance, "q1")) == 110
    assert instance.jobs.dead_letters(QueueName.QUERY).list() == ()


@pytest.mark.parametrize("other", [{}, {"regions": [{"k": {"min": 3, "max": 5}}]}])
def test_a_redelivered_query_changes_nothing(instance, table, other):
    send(instance, "q1")
    (first,) = instance.jobs.queue(QueueName.QUERY).receive()
    run_query_message(instance, first)
    instance.jobs.queue(QueueName.QUERY).delete(first.receipt)
    work(instance)
    status = ask(instance, "q1", **other)
    before = results(instance, "q1")
    for receives in (1, 2, 9):
        assert run_query_message(instance, replace(first, receives=receives)) == 0
        work(instance)
    assert instance.queries.tracker().query("q1") == status
    assert results(instance, "q1") == before


def test_a_late_worker_of_an_earlier_query_leaves_no_results(instance, table, monkeypatch):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    plan_query_message(instance, message)
    instance.jobs.queue(QueueName.QUERY).delete(message.receipt)
    late, *others = instance.jobs.queue(QueueName.LEAF_QUERY).receive(10)

    def start_over() -> None:
        for again in (late, *others):
            run_leaf_query_message(instance, again)
        ask(instance, "q1", regions=[{"k": {"min": 3, "max": 5}}])

    monkeypatch.setattr(
        "sleeper.query_service.publish.write_client_parquet",
        call_before_first(start_over, write_client_parquet),
    )
    assert run_leaf_query_message(instance, late) == 0
    assert instance.queries.tracker().query("q1").row_count == 2
    assert [row["k"] for row in rows(instance, "q1")] == [3, 4]


def call_before_first(work: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, which first calls `work` when it is called the first time."""
    pending = [work]

    def call(*arguments: Any) -> Any:
        if pending:
            pending.pop()()
        return function(*arguments)

    return call


def test_too_many_rows_fail_a_query(instance, table):
    instance.change_properties({"sleeper.query.rows.max": "10"})
    status = ask(instance, "q1")
    assert (status.state, "more than 10 rows" in (status.error or "")) == (QueryState.FAILED, True)
    assert results(instance, "q1") == []


def test_some_leaves_that_fail_make_a_query_partially_failed(instance, table):
    instance.change_properties({"sleeper.query.rows.max": "10"})
    status = ask(instance, "q1", regions=[{"k": {"min": 20, "max": 50}}])
    assert (status.state, status.row_count) == (QueryState.PARTIALLY_FAILED, 5)


def test_unwritable_results_fail_a_query_after_several_tries(instance, table, monkeypatch, clock):
    root = type(instance.queries.results_root(None))
    monkeypatch.setattr(root, "replacing", make_raiser(UnavailableError("the bucket refuses")))
    send(instance, "q1")
    for _ in range(10):
        work(instance)
        clock.now_ms += 10_000
    status = instance.queries.tracker().query("q1")
    assert status.state is QueryState.FAILED
    assert "gave up after 3 tries: UnavailableError: the bucket refuses" in (status.error or "")
    assert instance.jobs.queue(QueueName.LEAF_QUERY).counts().unfinished == 0


def test_a_subquery_fails_after_all_its_workers_died(instance, table, clock):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    plan_query_message(instance, message)
    queue = instance.jobs.queue(QueueName.LEAF_QUERY)
    for _ in range(3):
        assert len(queue.receive(10)) == 4
        clock.now_ms += 1000_000
    work(instance)
    status = instance.queries.tracker().query("q1")
    assert status.state is QueryState.FAILED
    assert "gave up after 3 tries" in (status.error or "")
    assert queue.counts().dead == 0


def test_too_many_rows_in_all_parts_fail_a_query(instance, table):
    instance.change_properties({"sleeper.query.message.rows.max": "60"})
    status = ask(instance, "q1")
    assert (status.state, status.row_count) == (QueryState.PARTIALLY_FAILED, 50)
    assert "the limit of sleeper.query.message.rows.max" in (status.error or "")
    # What there was no room for was not written either.
    assert len(rows(instance, "q1")) == 50
    assert ask(instance, "q2", regions=[{"k": {"min": 20, "max": 80}}]).row_count == 60


def test_subqueries_that_begin_too_late_fail(instance, table, clock):
    instance.change_properties({"sleeper.query.message.time.max.seconds": "100"})
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    plan_query_message(instance, message)
    first, *others = instance.jobs.queue(QueueName.LEAF_QUERY).receive(10)
    clock.now_ms += 99_000
    run_leaf_query_message(instance, first)
    clock.now_ms += 2000
    for late in others:
        run_leaf_query_message(instance, late)
    status = instance.queries.tracker().query("q1")
    assert (status.state, status.row_count) == (QueryState.PARTIALLY_FAILED, 25)
    assert "100 s, the maximum of sleeper.query.message.time.max.seconds" in (status.error or "")
    assert holds(instance) == []


def test_a_query_of_too_many_bytes_is_refused_before_anything_is_read(instance, table):
    instance.change_properties({"sleeper.query.bytes.max": "10"})
    status = ask(instance, "q1")
    assert status.state is QueryState.FAILED
    assert "sleeper.query.bytes.max allows 10" in (status.error or "")
    assert instance.queries.tracker().subqueries("q1") == ()
    with pytest.raises(InvalidRequestError, match=r"query\.bytes\.max"):
        open_query(instance, "t", Query())
    with pytest.raises(InvalidRequestError, match=r"query\.bytes\.max"):
        open_sql(instance, "SELECT count(*) FROM t")
    assert open_sql(instance, "SELECT 1 AS one").read_all().num_rows == 1


CALLERS = {
    "local": {"valueFields": ["v"], "iterator": "RowSecurity", "config": "label,public"},
    "AROA1": {},
}


def test_a_caller_sees_only_its_columns_and_rows(instance, table):
    set_callers(instance, CALLERS)
    assert ask(instance, "q1").row_count == 90
    assert set(rows(instance, "q1")[0]) == {"k", "at", "v"}
    assert all(row["k"] % 10 for row in rows(instance, "q1"))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"requestedValueFields": ["label"]}, "field 'label' is not visible"),
        (
            {"queryTimeIteratorClassName": "RowSecurity", "queryTimeIteratorConfig": "label"},
            "field 'label' is not visible",
        ),
    ],
)
def test_queries_beyond_the_permissions_of_a_caller_are_refused(instance, table, members, reason):
    set_callers(instance, CALLERS)
    status = ask(instance, "q1", **members)
    assert (status.state, reason in (status.error or "")) == (QueryState.FAILED, True)


def test_an_unnamed_caller_is_refused(instance, table):
    set_callers(instance, {"AROA1": {}})
    status = ask(instance, "q1")
    assert (status.state, status.error) == (
        QueryState.FAILED,
        "caller 'local' may not query table 't'",
    )


def set_callers(instance: Instance, callers: dict[str, Any]) -> None:
    table_id = instance.tables.index.find("t").id
    instance.tables.properties.change(table_id, {QUERY_CALLERS.name: json.dumps(callers)})


def test_a_websocket_is_sent_subqueries_then_rows_then_completed_frames(instance, table):
    frames: list[dict[str, Any]] = []
    listener = make_frame_sender(instance, lambda _, frame: frames.append(json.loads(frame)))
    connection = {"destination": "WEBSOCKET", "endpoint": "e", "connectionId": "c"}
    message = {"resultsPublisherConfig": connection, "statusReportDestinations": [connection]}
    ask(listener, "q1", **message)
    assert [f["message"] for f in frames] == ["subqueries", *["rows"] * 4, *["completed"] * 4]
    assert sum(len(f["rows"]) for f in frames[1:5]) == 100
    assert sorted(f["queryId"] for f in frames[5:]) == sorted(frames[0]["queryIds"])
    assert all((f["rowCount"], f["locations"]) == (25, []) for f in frames[5:])


def test_a_websocket_receives_a_failure(instance, table):
    frames: list[dict[str, Any]] = []
    listener = make_frame_sender(instance, lambda _, frame: frames.append(json.loads(frame)))
    connection = {"destination": "WEBSOCKET", "endpoint": "e", "connectionId": "c"}
    ask(listener, "q1", tableName="nowhere", resultsPublisherConfig=connection)
    (frame,) = frames
    assert (frame["message"], "nowhere" in frame["error"]) == ("error", True)


@pytest.mark.parametrize("members", [{"regions": []}, {"tableName": "nowhere"}])
def test_a_websocket_receives_one_error_for_the_id_of_another_query(
    instance, table, clock, members
):
    send(instance, "q1")
    (message,) = instance.jobs.queue(QueueName.QUERY).receive()
    plan_query_message(instance, message)
    frames: list[dict[str, Any]] = []
    listener = make_frame_sender(instance, lambda _, frame: frames.append(json.loads(frame)))
    connection = {"destination": "WEBSOCKET", "endpoint": "e", "connectionId": "c"}
    message_id = listener.jobs.queue(QueueName.QUERY).send(
        body("q1", resultsPublisherConfig=connection, **members)
    )
    (refused,) = listener.jobs.queue(QueueName.QUERY).receive()
    assert refused.message_id == message_id
    for receives in (1, 2, 3, 4):
        with pytest.raises(QueryIdTakenError):
            plan_query_message(listener, replace(refused, receives=receives))
    (frame,) = frames
    assert (frame["message"], frame["queryId"]) == ("error", "q1")
    assert instance.queries.tracker().query("q1").state is QueryState.IN_PROGRESS


def test_a_query_of_one_leaf_lists_no_subqueries(instance, table):
    frames: list[dict[str, Any]] = []
    listener = make_frame_sender(instance, lambda _, frame: frames.append(json.loads(frame)))
    connection = {"destination": "WEBSOCKET", "endpoint": "e", "connectionId": "c"}
    one_leaf = [{"k": {"min": 1, "max": 2}}]
    ask(listener, "q1", resultsPublisherConfig=connection, regions=one_leaf)
    assert [(f["message"], f["queryId"]) for f in frames] == [("rows", "q1"), ("completed", "q1")]


def test_rows_are_not_sent_to_a_websocket_again(instance, table):
    frames: list[str] = []
    listener = make_frame_sender(instance, lambda _, frame: frames.append(frame))
    connection = {"destination": "WEBSOCKET", "endpoint": "e", "connectionId": "c"}
    send(listener, "q1", resultsPublisherConfig=connection, regions=[{"k": {"min": 1, "max": 2}}])
    (message,) = listener.jobs.queue(QueueName.QUERY).receive()
    subquery = plan_query_message(listener, message)
    assert subquery is not None
    run_subquery(listener, subquery.message, tries=2, held=False)
    assert [json.loads(f)["message"] for f in frames] == ["error"]


def make_frame_sender(instance: Instance, send_frame: Callable[[Any, str], None]) -> Instance:

    return with_ports(instance, queries={"send_frame": send_frame})


def make_raiser(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail
