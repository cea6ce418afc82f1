"""What AWS bills, from the metrics of CloudWatch."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from sleeper.aws.clients import aws_client
from sleeper.aws.usage import DAYS, read_monthly_use
from sleeper.billing.use import MonthlyUse
from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import TaskEvent, TaskStep
from sleeper.jobs.tracker import TaskTracker
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.values import instance_properties

NOW = datetime.now(UTC).replace(microsecond=0)
NOW_MS = int(1000 * NOW.timestamp())
MONTH = 365 / 12 / DAYS
VALUES = {
    "sleeper.id": "x",
    "sleeper.billed.parts": (
        "function:plan-query:2048,function:fan-out-gc:512,task:ingest:2048:4096,alarms:10"
    ),
    "sleeper.ingest.job.queue.url": "https://sqs/1/sleeper-x-ingest-jobs",
    "sleeper.data.bucket": "data",
    "sleeper.tracker.jobs.table": "jobs",
}


@pytest.fixture
def cloudwatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    with mock_aws():
        aws_client.cache_clear()
        boto3.client("dynamodb").create_table(
            TableName="jobs",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "job", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "job", "AttributeType": "S"}],
        )
        yield boto3.client("cloudwatch")
    aws_client.cache_clear()


def put(client: Any, namespace: str, metric: str, value: float, **dimensions: str) -> None:
    datum = {
        "MetricName": metric,
        "Timestamp": NOW - timedelta(days=1),
        "Value": value,
        "Dimensions": [{"Name": name, "Value": each} for name, each in dimensions.items()],
    }
    client.put_metric_data(Namespace=namespace, MetricData=[datum])


def read(tasks: TaskTracker, data_bytes: int = 0, **values: str) -> dict[str, MonthlyUse]:
    changed = {name.replace("_", "."): value for name, value in values.items()}
    properties = instance_properties({**VALUES, **changed})
    uses = read_monthly_use(properties, tasks, NOW_MS, data_bytes)
    return {f"{each.part} {each.detail.partition(':')[0]}": each for each in uses}


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[TaskTracker]:
    create_local_instance(tmp_path / "i", "x")
    with closing(open_local_instance(tmp_path / "i")) as instance:
        yield instance.jobs.tasks


def test_what_cloudwatch_counted_is_that_of_a_month(cloudwatch: Any, tasks: TaskTracker) -> None:
    put(cloudwatch, "AWS/Lambda", "Invocations", 70, FunctionName="sleeper-x-plan-query")
    put(cloudwatch, "AWS/Lambda", "Duration", 7000, FunctionName="sleeper-x-plan-query")
    put(cloudwatch, "AWS/Lambda", "Invocations", 7, FunctionName="sleeper-y-plan-query")
    for metric in ("NumberOfMessagesSent", "NumberOfEmptyReceives"):
        put(cloudwatch, "AWS/SQS", metric, 700, QueueName="sleeper-x-ingest-jobs")
    index = {"TableName": "jobs", "GlobalSecondaryIndexName": "recent"}
    for dimensions in ({"TableName": "jobs"}, index):
        put(cloudwatch, "AWS/DynamoDB", "ConsumedWriteCapacityUnits", 7, **dimensions)
    standard = {"BucketName": "data", "StorageType": "StandardStorage"}
    put(cloudwatch, "AWS/S3", "BucketSizeBytes", 3 * 2**30, **standard)
    group = "/aws/lambda/sleeper-x-plan-query"
    put(cloudwatch, "AWS/Logs", "IncomingBytes", 7 * 2**30, LogGroupName=group)
    uses = read(tasks, data_bytes=2**30)
    assert uses["functions plan-query"].amounts == {
        "lambda_million_invocations": pytest.approx(70 * MONTH),
        "lambda_arm_gb_second": pytest.approx(2 * 7 * MONTH),
    }
    assert uses["queues sleeper-x-ingest-jobs"].amounts == {
        "sqs_million_requests": pytest.approx(1400 * MONTH)
    }
    units = uses["tables of DynamoDB jobs"].amounts
    assert units["dynamodb_million_write_units"] == pytest.approx(14 * MONTH)
    # The tables' own data files are reported for each table.
    assert uses["buckets data"].amounts == {"s3_gb_month": 2.0}
    (logs,) = (each.amounts for name, each in uses.items() if name.startswith("logs"))
    assert logs["logs_gb"] == pytest.approx(7 * MONTH)
    assert {name: each.is_measured for name, each in uses.items() if not each.is_measured} == {
        "alarms 10 alarms": False,
        "counts of queues two a queue": False,
        "metrics that the watch reads each hour": False,
        "reads of properties one a run": False,
    }


def test_tasks_count_in_the_measured_days(cloudwatch: Any, tasks: TaskTracker) -> None:
    assert cloudwatch
    hour_ms = 3_600_000
    for name, start_hours, end_hours in (("a", 3, 1), ("b", 24 * DAYS + 5, 24 * DAYS - 1)):
        for step, hours in ((TaskStep.STARTED, start_hours), (TaskStep.ENDED, end_hours)):
            tasks.record(TaskEvent(name, "ingest", step, NOW_MS - hours * hour_ms))
    (task,) = (each for name, each in read(tasks).items() if name.startswith("tasks"))
    hours = pytest.approx(3 * MONTH)
    assert task.amounts["public_address_hour"] == hours
    assert task.amounts["fargate_arm_cpu_hour"] == pytest.approx(6 * MONTH)


def test_what_aws_does_not_count_is_calculated_from_the_deployment(
    cloudwatch: Any, tasks: TaskTracker
) -> None:
    put(cloudwatch, "AWS/Lambda", "Invocations", 70, FunctionName="sleeper-x-fan-out-gc")
    key = "arn:aws:kms:eu-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"
    uses = read(tasks, sleeper_kms_key_arn=key, sleeper_tracing="true")
    watched = 2 * 365 / 12 * 24 * 12
    counts = uses["counts of queues two a queue"].amounts
    assert counts == {"sqs_million_requests": pytest.approx(watched + 140 * MONTH)}
    assert uses["KMS key and requests"].amounts["kms_key_month"] == 1
    assert uses["traces one a run"].amounts == {"xray_million_traces": pytest.approx(70 * MONTH)}
    assert uses["alarms 10 alarms"].amounts == {"alarm_month": 10}


def test_a_deployment_of_an_older_version_has_no_parts(cloudwatch: Any, tasks: TaskTracker) -> None:
    assert cloudwatch
    with pytest.raises(InvalidRequestError, match=r"sleeper\.billed\.parts is not set"):
        read(tasks, sleeper_billed_parts="")
