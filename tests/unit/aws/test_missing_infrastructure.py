"""Tests that missing tables, queues and buckets are unavailable, and only items not found."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from sleeper.aws.config_bucket import CodeObjects, PropertyFiles
from sleeper.aws.errors import MissingResourceError
from sleeper.aws.file_requests import DynamoFileRequests
from sleeper.aws.query_tracker import DynamoQueryTracker
from sleeper.aws.queue import SqsQueue, SqsResultsQueue
from sleeper.aws.tables import DynamoTableIndex, TableIndexNames
from sleeper.aws.trackers import DynamoJobTracker, DynamoTaskTracker
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.errors import NotFoundError
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.file_requests import FileRequest
from sleeper.jobs.query_tracker import QueryPin
from sleeper.statestore.log import LogEntry
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.storage.bucket import Bucket, MissingBucketError, open_bucket
from sleeper.storage.location import DataRoot
from sleeper.tables import TableId
from tests.servers.dynoxide import DynamoServer
from tests.servers.seaweedfs import S3Server

TABLE = TableId("0000000a")
MISSING = "missing-table"
QUEUE_URL = "https://sqs.eu-west-2.amazonaws.com/123456789012/missing"

Call = Callable[[Any], object]


def index(client: Any) -> DynamoTableIndex:
    return DynamoTableIndex(client, TableIndexNames(MISSING, f"{MISSING}-id", f"{MISSING}-online"))


def jobs(client: Any) -> DynamoJobTracker:
    return DynamoJobTracker(client, MISSING, 30)


def queries(client: Any) -> DynamoQueryTracker:
    return DynamoQueryTracker(client, MISSING, 30)


def requests(client: Any) -> DynamoFileRequests:
    return DynamoFileRequests(client, MISSING)


def log(client: Any) -> DynamoTransactionLog:
    return DynamoTransactionLog(client, MISSING, TABLE, None)  # type: ignore[arg-type]


EVENT = JobEvent(TABLE, "j", JobKind.INGEST, JobStep.CREATED, 1)
REQUEST = FileRequest(TABLE, "r", "bucket/file", 1, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: index(c).find("t"),
        lambda c: index(c).get(TABLE),
        lambda c: index(c).list(),
        lambda c: jobs(c).job(TABLE, "j"),
        lambda c: jobs(c).record(EVENT),
        lambda c: jobs(c).unknown(TABLE, ["j"]),
        lambda c: jobs(c).recent(),
        lambda c: DynamoTaskTracker(c, MISSING, 30).task("t"),
        lambda c: queries(c).begin("q", QueryPin("f", TABLE, 1, 1)),
        lambda c: queries(c).query("q"),
        lambda c: queries(c).finish("q", "s", 1),
        lambda c: requests(c).add([REQUEST]),
        lambda c: requests(c).waiting(TABLE),
        lambda c: requests(c).assign("j", [REQUEST]),
        lambda c: log(c).head(),
        lambda c: log(c).append(LogEntry(1, 1, 1, "w", "")),
    ],
)
def test_a_missing_table_of_dynamodb_is_unavailable(
    dynamo_server: DynamoServer, call: Call
) -> None:
    with pytest.raises(MissingResourceError, match="ResourceNotFoundException"):
        call(dynamo_server.client)


@pytest.fixture
def sqs() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("sqs", region_name="eu-west-2")


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.send("body"),
        lambda queue: queue.send_all(["body"]),
        lambda queue: queue.receive(),
        lambda queue: queue.delete("receipt"),
        lambda queue: queue.counts(),
    ],
)
def test_a_missing_queue_of_the_instance_is_unavailable(sqs: Any, call: Call) -> None:
    with pytest.raises(MissingResourceError, match="queue 'ingest'"):
        call(SqsQueue(sqs, "ingest", QUEUE_URL, f"{QUEUE_URL}-dead"))


def test_a_missing_queue_that_a_query_names_is_not_found(sqs: Any) -> None:
    queue = SqsResultsQueue(sqs, QUEUE_URL)
    with pytest.raises(NotFoundError, match="missing"):
        queue.send_all(["row"])
    with pytest.raises(NotFoundError, match="missing"):
        _ = queue.message_bytes_max


@pytest.mark.parametrize(
    "call",
    [
        lambda bucket: DataRoot(bucket).read("a"),
        lambda bucket: CodeObjects(open_bucket(bucket)).read("a.whl"),
        lambda bucket: PropertyFiles(open_bucket(bucket), bucket.name).read(TABLE),
        lambda bucket: PropertyFiles(open_bucket(bucket), bucket.name).instance(),
    ],
)
def test_a_missing_bucket_is_unavailable(
    s3_server: S3Server, call: Callable[[Bucket], object]
) -> None:
    with pytest.raises(MissingBucketError, match="NoSuchBucket"):
        call(s3_server.bucket("missing-bucket"))


def test_a_snapshot_in_a_missing_bucket_is_not_skipped(s3_server: S3Server) -> None:
    snapshots = SnapshotStore(open_bucket(s3_server.bucket("missing-bucket")), TABLE)
    with pytest.raises(MissingBucketError), snapshots._translated("snapshot"):
        open_bucket(s3_server.bucket("missing-bucket")).get("snapshot")
