"""Queries by message on an AWS instance over real servers, as a client sees them.

S3 is SeaweedFS, DynamoDB is dynoxide, SQS is ministack's. The client uses docs/formats.md alone: it
reads properties, sends to a queue, reads the tracker's items and lists the results.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName, QueueSettings
from sleeper.properties.deployed import DEPLOYED_QUEUES, QUERY_RESULTS_BUCKET, QUERY_TRACKER_TABLE
from sleeper.retries import FUNCTION_RECEIVES_MIN
from tests.handlers import functions
from tests.handlers.conftest import SCHEMA, Lambda, add_rows, batch_of, failed
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.servers.sqs import make_queue


@pytest.fixture
def deployed_instance(aws_servers: AwsServers, tmp_path: Path) -> Iterator[AwsInstance]:
    """An instance whose queues deliver a message as often as those that start functions."""
    settings = QueueSettings(receives_max=FUNCTION_RECEIVES_MIN + 1)
    with aws_instance(aws_servers, tmp_path, settings=settings) as created:
        yield created


@pytest.fixture
def aws(instance_on_aws: Instance) -> Lambda:
    """With forty keys over four leaves."""
    create_table(instance_on_aws, "t", SCHEMA, split_points=[10, 20, 30])
    add_rows(instance_on_aws, "t", *range(40))
    return Lambda(instance_on_aws)


def send(deployed_instance: AwsInstance, instance: Instance, query_id: str, **members: Any) -> None:
    raw = {"type": "Query", "queryId": query_id, "tableName": "t", "regions": [{"k": {}}]}
    url = instance.properties().get(DEPLOYED_QUEUES["query"].url)
    client = deployed_instance.servers.others.client("sqs")
    client.send_message(QueueUrl=url, MessageBody=json.dumps({**raw, **members}))


def run(aws: Lambda) -> None:
    aws.take(QueueName.QUERY, functions.plan_query)
    aws.take(QueueName.LEAF_QUERY, functions.run_leaf_query)


def item(
    deployed_instance: AwsInstance, instance: Instance, query_id: str, sub_id: str = "-"
) -> Any:
    return deployed_instance.servers.dynamo.client.get_item(
        TableName=instance.properties().get(QUERY_TRACKER_TABLE),
        Key={"queryId": {"S": query_id}, "subQueryId": {"S": sub_id}},
    )["Item"]


def test_results_are_in_the_bucket_when_the_tracker_reports_completion(
    aws: Lambda, deployed_instance: AwsInstance, tmp_path: Path
) -> None:
    instance = aws.instance
    send(deployed_instance, instance, "q1")
    run(aws)
    query = item(deployed_instance, instance, "q1")
    assert query["lastKnownState"] == {"S": "COMPLETED"}
    assert query["rowCount"] == {"N": "40"}
    now = time.time()
    assert abs(int(query["lastUpdateTime"]["N"]) - now) < 60
    assert 86_000 < int(query["expiryDate"]["N"]) - now < 87_000
    bucket = instance.properties().get(QUERY_RESULTS_BUCKET)
    s3 = deployed_instance.s3()
    keys = [o["Key"] for o in s3.list_objects_v2(Bucket=bucket, Prefix="query-q1/")["Contents"]]
    results: list[int] = []
    for key in keys:
        sub_id = key.removeprefix("query-q1/").removesuffix(".parquet")
        assert item(deployed_instance, instance, "q1", sub_id)["lastKnownState"] == {
            "S": "COMPLETED"
        }
        s3.download_file(bucket, key, str(tmp_path / "one.parquet"))
        results += pq.read_table(tmp_path / "one.parquet").column("k").to_pylist()
    assert (len(keys), sorted(results)) == (4, list(range(40)))


def test_a_client_receives_its_rows_from_its_queue(
    aws: Lambda, deployed_instance: AwsInstance
) -> None:
    client = deployed_instance.servers.others.client("sqs")
    mine = make_queue(client, f"{deployed_instance.id}-mine", QueueSettings(30, 3, False))
    to_queue = {"destination": "SQS", "sqsResultsUrl": mine.url, "batchSize": "4"}
    send(deployed_instance, aws.instance, "q1", resultsPublisherConfig=to_queue)
    run(aws)
    bodies: list[dict[str, Any]] = []
    while result := client.receive_message(QueueUrl=mine.url, MaxNumberOfMessages=10).get(
        "Messages"
    ):
        bodies += [json.loads(message["Body"]) for message in result]
        for message in result:
            client.delete_message(QueueUrl=mine.url, ReceiptHandle=message["ReceiptHandle"])
    assert sorted(r["k"] for body in bodies for r in body["rows"]) == list(range(40))
    assert sum(body.get("messages", 0) for body in bodies) == len(bodies) == 12


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ({"destination": "S3", "bucket": "NO"}, "gave up after 5 tries"),
        ({"destination": "SQS", "sqsResultsUrl": "http://127.0.0.1:1/1/no.fifo"}, "FIFO"),
    ],
)
def test_unwritable_result_destinations_fail_the_query(
    aws: Lambda, deployed_instance: AwsInstance, results: Any, reason: str
) -> None:
    one_leaf = [{"k": {"min": 1, "max": 2}}]
    send(deployed_instance, aws.instance, "q1", regions=one_leaf, resultsPublisherConfig=results)
    queue = aws.instance.jobs.queue(QueueName.QUERY)
    for _ in range(6):
        for message in queue.receive(wait_seconds=1):
            if failed(aws.call(functions.plan_query, batch_of([message]))):
                queue.release(message.receipt)
            else:
                queue.delete(message.receipt)
    result = item(deployed_instance, aws.instance, "q1")
    assert (result["lastKnownState"]["S"], reason in result["errors"]["S"]) == ("FAILED", True)
    assert queue.counts().unfinished == 0


def test_a_warm_function_answers_at_the_newest_version(
    aws: Lambda, deployed_instance: AwsInstance
) -> None:
    """Its time is that of the function alone, without the queue's."""
    for number in range(5):
        add_rows(aws.instance, "t", 100 + number)
        folder = [{"k": {"min": 100 + number, "max": 101 + number}}]
        send(deployed_instance, aws.instance, f"q{number}", regions=folder)
        (message,) = aws.instance.jobs.queue(QueueName.QUERY).receive(wait_seconds=5)
        event = batch_of([message])
        start = time.perf_counter()
        assert failed(aws.call(functions.plan_query, event)) == []
        print(f"{(time.perf_counter() - start) * 1000:.0f} ms")
        assert item(deployed_instance, aws.instance, f"q{number}")["rowCount"] == {"N": "1"}
