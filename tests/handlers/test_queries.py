"""The functions that plan and run queries, with Lambda's events."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.query_tracker import QueryState
from sleeper.jobs.queue import QueueName
from sleeper.query.messages.query import rewrite_query_body
from sleeper.tables import TableRef
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, batch_of, failed, make_table, messages_of

DISPATCH = "sleeper.query_service.service.dispatch_query"
# Who sent the messages of `events/sqs.json`.
SENDER = "AIDAIENQZJOLO23YVJ4VO"


@pytest.fixture
def table(instance: Instance) -> TableRef:
    """Forty keys over four leaves."""
    ref = make_table(instance, "t", partition_splitting_threshold="10")
    add_rows(instance, "t", *range(40))
    aws = Lambda(instance)
    assert failed(aws.call(functions.find_partitions_to_split, batch_of(messages_of(ref.id)))) == []
    aws.take(QueueName.SPLITTING, functions.split_partition)
    return ref


def body(query_id: str, **members: Any) -> str:
    raw = {"type": "Query", "queryId": query_id, "tableName": "t", "regions": [{"k": {}}]}
    return json.dumps({**raw, **members})


def run(aws: Lambda, query_id: str, **members: Any) -> None:
    aws.instance.jobs.queue(QueueName.QUERY).send(body(query_id, **members))
    aws.take(QueueName.QUERY, functions.plan_query)
    aws.take(QueueName.LEAF_QUERY, functions.run_leaf_query)


def test_a_query_is_planned_run_and_completed(aws: Lambda, table: TableRef) -> None:
    run(aws, "q1")
    status = aws.instance.queries.tracker().query("q1")
    assert (status.state, status.row_count) == (QueryState.COMPLETED, 40)
    folder = Path(aws.instance.queries.results_root(None).url_of("query-q1"))
    assert sum(pq.read_metadata(path).num_rows for path in folder.iterdir()) == 40


@pytest.mark.parametrize("handler", [functions.plan_query, functions.run_leaf_query])
def test_a_run_that_keeps_a_container_warm_has_nothing_to_do(aws: Lambda, handler: Any) -> None:
    assert aws.call(handler, {"Records": []}) == {"batchItemFailures": []}


def test_a_poison_message_fails_and_the_batch_continues(aws: Lambda, table: TableRef) -> None:
    event = batch_of(messages_of("{", body("q1", regions=[]), groups=("", "")))
    assert failed(aws.call(functions.plan_query, event)) == []
    states = {q.query_id: q.state for q in aws.instance.queries.tracker().recent()}
    assert states == {"m0": QueryState.FAILED, "q1": QueryState.COMPLETED}
    assert failed(aws.call(functions.run_leaf_query, batch_of(messages_of("{", groups=[""])))) == []


def test_the_id_of_another_query_returns_until_it_is_a_dead_letter(
    aws: Lambda, table: TableRef
) -> None:
    aws.instance.jobs.queue(QueueName.QUERY).send(body("q1"))
    aws.take(QueueName.QUERY, functions.plan_query)
    event = batch_of(messages_of(body("q1", regions=[]), groups=[""]))
    for _ in range(2):
        assert failed(aws.call(functions.plan_query, event)) == ["m0"]
    states = {q.query_id: q.state for q in aws.instance.queries.tracker().recent()}
    assert states == {"q1": QueryState.IN_PROGRESS, "m0": QueryState.FAILED}


def test_unavailable_work_returns_soon(
    aws: Lambda, table: TableRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise UnavailableError("no answer")

    queue = aws.instance.jobs.queue(QueueName.QUERY)
    queue.send(body("q1", regions=[{"k": {"min": 1, "max": 2}}]))
    (message,) = queue.receive()
    event = batch_of([message])
    with monkeypatch.context() as patch:
        patch.setattr("sleeper.query_service.run.run_query", dies)
        assert failed(aws.call(functions.plan_query, event)) == [message.message_id]
        assert aws.instance.queries.tracker().query("q1").state is QueryState.IN_PROGRESS
    counts = queue.counts()
    assert (counts.delayed, counts.in_flight) == (1, 0)
    assert failed(aws.call(functions.plan_query, event)) == []
    assert aws.instance.queries.tracker().query("q1").row_count == 1


@pytest.mark.parametrize("function", [functions.plan_query, functions.run_leaf_query])
def test_receives_of_throttled_functions_are_no_tries(
    aws: Lambda, table: TableRef, monkeypatch: pytest.MonkeyPatch, function: Any
) -> None:
    """A message of a queue with five tries, of which the first were throttled."""

    def dies(*_: Any) -> None:
        raise OSError("no answer")

    is_leaf = function is functions.run_leaf_query
    aws.instance.jobs.queue(QueueName.QUERY).send(body("q1"))
    if is_leaf:
        aws.take(QueueName.QUERY, functions.plan_query)
    queue = aws.instance.jobs.queue(QueueName.LEAF_QUERY if is_leaf else QueueName.QUERY)
    (message, *_) = queue.receive()
    dying = "sleeper.query_service.run.run_query" if is_leaf else DISPATCH
    with monkeypatch.context() as patch:
        patch.setattr(dying, dies)
        event = batch_of([replace(message, receives=4)])
        assert failed(aws.call(function, event)) == [message.message_id]
    assert not [each for each in aws.instance.queries.tracker().recent() if each.error]
    assert failed(aws.call(function, batch_of([replace(message, receives=5)]))) == []
    assert aws.instance.queries.tracker().query("q1").error is None


def test_a_redriven_query_keeps_the_permissions_of_its_first_caller(
    aws: Lambda, table: TableRef
) -> None:
    changes = {"sleeper.table.query.callers": json.dumps({SENDER: {}, "AROA1": {"iterator": "No"}})}
    aws.instance.tables.properties.change(table.id, changes)
    requested = rewrite_query_body(body("q1"), "m7", "AROA1:somebody")
    aws.instance.jobs.queue(QueueName.QUERY).send(requested)
    aws.take(QueueName.QUERY, functions.plan_query)
    assert "'No'" in (aws.instance.queries.tracker().query("q1").error or "")
    # Whoever may not see all cannot send in another's name, and a redrive keeps that so.
    claimed = rewrite_query_body(body("q2", askedBy=[SENDER]), "m8", "AROA1:somebody")
    aws.instance.jobs.queue(QueueName.QUERY).send(claimed)
    aws.take(QueueName.QUERY, functions.plan_query)
    assert "on behalf of another" in (aws.instance.queries.tracker().query("q2").error or "")


@pytest.mark.parametrize(
    ("callers", "rows", "reason"),
    [
        ({SENDER: {}}, 40, None),
        ({"*": {"valueFields": []}}, 40, None),
        ({"AROA1": {}}, 0, f"caller '{SENDER}' may not query table 't'"),
    ],
)
def test_the_sender_of_the_message_is_the_caller(
    aws: Lambda, table: TableRef, callers: Any, rows: int, reason: str | None
) -> None:
    changes = {"sleeper.table.query.callers": json.dumps(callers)}
    aws.instance.tables.properties.change(table.id, changes)
    run(aws, "q1")
    status = aws.instance.queries.tracker().query("q1")
    assert (status.row_count, status.error) == (rows, reason)


@pytest.mark.parametrize(
    ("destination", "is_refused"),
    [
        ({"destination": "S3"}, True),
        ({"destination": "S3", "bucket": "results-of-all"}, True),
        ({"destination": "SQS"}, True),
        ({"destination": "SQS", "sqsResultsUrl": "https://sqs/results-of-all"}, True),
        ({"destination": "NoResultsOutput"}, False),
        ({"destination": "SQS", "sqsResultsUrl": "own"}, False),
    ],
)
@pytest.mark.parametrize("is_shared", [True, False])
def test_rows_of_one_caller_are_written_nowhere_that_all_callers_can_read(
    aws: Lambda, table: TableRef, destination: dict[str, str], is_refused: bool, is_shared: bool
) -> None:
    deployed = {
        "sleeper.query.role.arn": "arn:aws:iam::123456789012:role/query",
        "sleeper.query.results.bucket": "results-of-all",
        "sleeper.query.results.queue.url": "https://sqs/results-of-all",
        "sleeper.query.results.shared": str(is_shared).lower(),
    }
    aws.instance.change_properties(deployed)
    run(aws, "q1", resultsPublisherConfig=destination)
    status = aws.instance.queries.tracker().query("q1")
    assert "restricts its callers" not in (status.error or "")
    changes = {"sleeper.table.query.callers": json.dumps({SENDER: {}})}
    aws.instance.tables.properties.change(table.id, changes)
    run(aws, "q2", resultsPublisherConfig=destination)
    error = aws.instance.queries.tracker().query("q2").error or ""
    assert ("restricts its callers" in error) == (is_refused and is_shared)
