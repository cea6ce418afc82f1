"""The watch reports what does not happen, as metrics, from queues, functions and problems."""

import io
import json
import logging
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError
from moto import mock_aws

from sleeper.aws.clients import aws_client
from sleeper.aws.watch import WatchedResources, watch_functions
from sleeper.errors import UnavailableError
from sleeper.jobs.queue import QueueName
from sleeper.reports.metric import Metric
from sleeper.workers import lambda_function
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, make_table, metrics_in

NOW = datetime.now(UTC).replace(minute=2, second=0, microsecond=0)
LATER = NOW + timedelta(minutes=10)
RESOURCES = WatchedResources(
    "sleeper-x-", "watch", {"watch": 5, "gc": 15, "orphans": 1440, "commit": 0}, ["commit"], ["log"]
)


def to_ms(time: datetime) -> int:
    return int(1000 * time.timestamp())


@pytest.fixture(autouse=True)
def cloudwatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    with mock_aws():
        aws_client.cache_clear()
        yield boto3.client("cloudwatch")
    aws_client.cache_clear()


def put(client: Any, metric: str, name: str, minutes_ago: int, value: float = 1.0) -> None:
    """Records a value of a function, or of a table or queue, as AWS does."""
    namespace, dimension = {
        "WriteThrottleEvents": ("AWS/DynamoDB", "TableName"),
        "ApproximateAgeOfOldestMessage": ("AWS/SQS", "QueueName"),
    }.get(metric, ("AWS/Lambda", "FunctionName"))
    datum = {
        "MetricName": metric,
        "Timestamp": NOW - timedelta(minutes=minutes_ago),
        "Value": value,
    }
    # Lambda records each value for all functions of the account too.
    dimensions = [{"Name": dimension, "Value": name}]
    data = [{**datum, "Dimensions": dimensions}, {**datum, "Dimensions": []}]
    client.put_metric_data(Namespace=namespace, MetricData=data)


def run(client: Any, name: str, *minutes_ago: int, errors: int = 0) -> None:
    """Records runs of a function, and how many of the last ones failed."""
    for number, minutes in enumerate(sorted(minutes_ago, reverse=True)):
        is_error = number >= len(minutes_ago) - errors
        put(client, "Invocations", f"sleeper-x-{name}", minutes)
        put(client, "Errors", f"sleeper-x-{name}", minutes, float(is_error))


def watch() -> dict[str, int]:
    found = watch_functions(RESOURCES, to_ms(NOW))
    return {str(name): count for name, count in found.items() if count}


def test_functions_that_run_are_no_problem(cloudwatch: Any) -> None:
    run(cloudwatch, "watch", *range(10, 70, 5))
    run(cloudwatch, "gc", 10, 25, 40, 55, errors=2)
    run(cloudwatch, "commit", 10, 20, 30, errors=1)
    assert watch() == {}


def test_a_function_that_fails_in_three_periods_or_in_all_is_failing(
    cloudwatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run(cloudwatch, "watch", *range(10, 70, 5))
    run(cloudwatch, "gc", 10, 25, 40, 55, errors=3)
    run(cloudwatch, "commit", 30, errors=1)
    caplog.set_level(logging.WARNING)
    logging.getLogger("sleeper").propagate = True
    assert watch() == {"FailingFunctions": 2}
    assert "function sleeper-x-gc fails" in caplog.text


def test_a_schedule_is_missed_once_its_function_did_not_run_for_three_periods(
    cloudwatch: Any,
) -> None:
    run(cloudwatch, "watch", *range(10, 70, 5))
    run(cloudwatch, "gc", 80)
    assert watch() == {"Overdue": 1}


def test_a_new_or_resumed_instance_has_missed_no_schedule(cloudwatch: Any) -> None:
    run(cloudwatch, "watch", *range(10, 40, 5))
    assert watch() == {}


def test_a_pause_delays_schedules_and_misses_none(cloudwatch: Any) -> None:
    run(cloudwatch, "gc", 10)
    days = [day * 1440 for day in (1, 2, 3)]
    run(cloudwatch, "watch", 10, days[2] - 100)
    assert watch() == {}
    run(cloudwatch, "watch", days[1] - 100)
    assert watch() == {"Overdue": 1}


def test_a_daily_schedule_is_missed_after_three_days(cloudwatch: Any) -> None:
    run(cloudwatch, "watch", *range(10, 70, 5))
    run(cloudwatch, "gc", 10)
    two_days = 2 * 1440 - 100
    run(cloudwatch, "watch", two_days)
    assert watch() == {}
    run(cloudwatch, "watch", 2160, 3 * 1440 - 100)
    run(cloudwatch, "orphans", 3 * 1440 + 100)
    assert watch() == {"Overdue": 1}
    run(cloudwatch, "orphans", 1440)
    assert watch() == {}


def test_throttles_of_the_committer_and_of_the_log_are_counted(cloudwatch: Any) -> None:
    put(cloudwatch, "Throttles", "sleeper-x-commit", 30, 7)
    put(cloudwatch, "Throttles", "sleeper-x-gc", 30, 100)
    put(cloudwatch, "WriteThrottleEvents", "log", 20, 5)
    assert watch() == {"Throttles": 12}


def call(
    aws: Lambda,
    monkeypatch: pytest.MonkeyPatch,
    time: datetime,
    sources: Mapping[str, str] | None = None,
) -> dict[str, int]:
    # An instance on AWS has queues of operations on tables too.
    queues = (*aws.instance.jobs.queues, QueueName.GARBAGE_COLLECTION, QueueName.ORPHAN_COLLECTION)
    jobs = replace(aws.instance.jobs, queues=queues)
    instance = replace(aws.instance, jobs=jobs, clock=lambda: to_ms(time))
    monkeypatch.setattr(lambda_function, "_opened", lambda _where: instance)
    watched = {name: getattr(RESOURCES, name) for name in WatchedResources.__slots__}
    monkeypatch.setenv("SLEEPER_WATCHED", json.dumps(watched))
    monkeypatch.setenv("SLEEPER_WATCH_MINUTES", "5")
    monkeypatch.setenv("SLEEPER_SOURCES", json.dumps(sources or {}))
    result: dict[str, int] = aws.call(functions.watch_instance)
    return result


def test_queues_are_watched_each_time(
    aws: Lambda,
    cloudwatch: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(aws, monkeypatch, LATER) == {}
    assert metrics_in(capsys.readouterr().out) == []
    aws.instance.jobs.queue(QueueName.INGEST).send("{}")
    put(cloudwatch, "ApproximateAgeOfOldestMessage", "ingest", 3, 900)
    put(cloudwatch, "ApproximateAgeOfOldestMessage", "compaction", 3, 9000)
    assert call(aws, monkeypatch, LATER) == {Metric.OLDEST_MESSAGE_SECONDS.value: 900}
    (metrics,) = metrics_in(capsys.readouterr().out)
    assert (metrics["kind"], metrics["OldestMessageSeconds"]) == ("instance", [900.0])


def test_dead_letters_are_counted_and_are_no_second_problem(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = aws.instance.jobs.queue(QueueName.INGEST)
    queue.send("{}")
    for _ in range(3):
        (message,) = queue.receive(1)
        queue.release(message.receipt)
    assert queue.receive(1) == ()
    assert queue.counts().dead == 1
    assert call(aws, monkeypatch, NOW) == {Metric.DEAD_LETTERS.value: 1}


def test_problems_of_tables_and_systems_are_counted_once_an_hour(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(aws.instance, "t", compaction_files_batch_size="2")
    for key in range(21):
        add_rows(aws.instance, "t", key)
    assert call(aws, monkeypatch, LATER) == {}
    assert call(aws, monkeypatch, NOW) == {Metric.LAGGING.value: 1}


def make_source(queue: QueueName) -> str:
    """Creates a queue whose messages start a function. Returns the id of its source."""
    roles, sqs, client = (aws_client(service) for service in ("iam", "sqs", "lambda"))
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = roles.create_role(RoleName=queue.value, AssumeRolePolicyDocument=policy)["Role"]["Arn"]
    url = sqs.create_queue(QueueName=queue.value)["QueueUrl"]
    names = ["QueueArn"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]["QueueArn"]
    with io.BytesIO() as code:
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("handler.py", "")
        client.create_function(
            FunctionName=queue.value,
            Runtime="python3.13",
            Role=role,
            Handler="handler.handler",
            Code={"ZipFile": code.getvalue()},
        )
    source = client.create_event_source_mapping(EventSourceArn=arn, FunctionName=queue.value)
    return str(source["UUID"])


def test_queues_on_demand_are_polled_while_they_have_messages(
    aws: Lambda, cloudwatch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = (QueueName.SPLITTING, QueueName.ORPHAN_COLLECTION, QueueName.GARBAGE_COLLECTION)
    sources = {queue.value: make_source(queue) for queue in queues}
    splitting = aws.instance.jobs.queue(QueueName.SPLITTING)
    splitting.send("{}")
    calls: list[str] = []
    events = aws_client("lambda").meta.events
    events.register("provide-client-params.lambda", lambda model, **_: calls.append(model.name))

    def are_polled() -> list[bool]:
        call(aws, monkeypatch, LATER, sources)
        client = aws_client("lambda")
        states = [client.get_event_source_mapping(UUID=each)["State"] for each in sources.values()]
        return [state == "Enabled" for state in states]

    assert are_polled() == [True, False, False]
    calls.clear()
    assert are_polled() == [True, False, False]
    assert set(calls) == {"GetEventSourceMapping"}
    # A message in flight may return.
    (message,) = splitting.receive(1)
    aws.instance.jobs.queue(QueueName.ORPHAN_COLLECTION).send("a", group="a")
    assert are_polled() == [True, True, False]
    splitting.delete(message.receipt)
    assert are_polled() == [False, True, False]


def test_a_part_that_fails_does_not_prevent_the_others(
    aws: Lambda,
    cloudwatch: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionClosedError(endpoint_url="https://monitoring")

    sources = {QueueName.SPLITTING.value: make_source(QueueName.SPLITTING)}
    queue = aws.instance.jobs.queue(QueueName.INGEST)
    queue.send("{}")
    make_table(aws.instance, "t", compaction_files_batch_size="2")
    for key in range(21):
        add_rows(aws.instance, "t", key)
    aws_client("cloudwatch").meta.events.register("before-call.cloudwatch", refuse)
    with pytest.raises(UnavailableError, match=r"failed: metrics of queues: .*of functions: "):
        call(aws, monkeypatch, NOW, sources)
    source = aws_client("lambda").get_event_source_mapping(UUID=sources["splitting"])
    assert source["State"] == "Disabled"
    (metrics,) = metrics_in(capsys.readouterr().out)
    assert metrics["Lagging"] == [1.0]
