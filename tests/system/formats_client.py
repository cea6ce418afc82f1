"""A client of a deployed instance that uses docs/formats.md and AWS, not the package."""

import base64
import io
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from websockets.sync.client import ClientConnection, connect

from tests.live_clients import JavaClient
from tests.system.deployed import Client

SECONDS_MAX = 400
"""Much more than is needed: others may keep the machine busy."""
# A client gives up after so long a silence.
_SILENCE_SECONDS = 30
_ENDS = {"COMPLETED", "FAILED", "PARTIALLY_FAILED"}

Item = dict[str, Any]


@dataclass
class FormatsClient:
    """`uploads` is the user's own bucket."""

    client: Client
    instance_id: str
    account: str
    uploads: str
    _properties: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def prefix(self) -> str:
        """The prefix of the names of queues and buckets."""
        return f"sleeper-{self.instance_id.lower().replace('.', '-')}"

    def properties(self) -> dict[str, str]:
        """Reads the instance's property file, once."""
        if not self._properties:
            bucket = f"{self.prefix}-config-{self.account}"
            result = self.client("s3").get_object(Bucket=bucket, Key="instance.properties")
            lines = result["Body"].read().decode().replace("\\", "").splitlines()
            pairs = (line.partition("=") for line in lines if not line.startswith("#"))
            self._properties |= {key: value for key, _, value in pairs}
        return self._properties

    def table_id(self, name: str) -> str:
        """A table's id, from the index by name."""
        index = self.properties()["sleeper.tables.name.index.dynamo.table"]
        key = {"TableName": {"S": name}}
        item = self.client("dynamodb").get_item(TableName=index, Key=key)["Item"]
        assert set(item) == {"TableId", "TableName", "Online"}
        return str(item["TableId"]["S"])

    def upload(self, key: str, rows: pa.Table) -> str:
        """Puts a Parquet file; the name that messages give it."""
        return self._upload(self.uploads, key, rows)

    def upload_directly(self, rows: pa.Table) -> str:
        """Uploads as the Python client of gchq/sleeper does: to the instance's data bucket."""
        bucket = self.properties()["sleeper.data.bucket"]
        return self._upload(bucket, f"for_ingest/{uuid.uuid4()}.parquet", rows)

    def _upload(self, bucket: str, key: str, rows: pa.Table) -> str:
        body = io.BytesIO()
        pq.write_table(rows, body)
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=body.getvalue())
        return f"{bucket}/{key}"

    def send(self, queue: str, body: str | dict[str, Any], *, by_name: bool = False) -> str:
        """Sends to the queue that a property names; returns the message's id."""
        sqs = self.client("sqs")
        url = self.properties()[f"sleeper.{queue}.queue.url"]
        if by_name:
            url = sqs.get_queue_url(QueueName=url.rpartition("/")[2])["QueueUrl"]
        text = body if isinstance(body, str) else json.dumps(body)
        return str(sqs.send_message(QueueUrl=url, MessageBody=text)["MessageId"])

    def ask(self, query_id: str, regions: list[Any], table: str, **members: Any) -> Item:
        """Sends a query and waits for its end; the tracker's item of it."""
        body = {"type": "Query", "queryId": query_id, "tableName": table, "regions": regions}
        self.send("query", {**body, **members})
        return self.end_of(query_id)

    def end_of(self, query_id: str) -> Item:
        """Waits for the end of a query and returns its item in the tracker."""
        results: list[Item] = []

        def has_ended() -> bool:
            results[:] = [item for item in self.tracked(query_id) if item["subQueryId"] == "-"]
            return bool(results) and results[0]["lastKnownState"] in _ENDS

        self.until(has_ended, f"query {query_id} has ended", pause=0.3)
        return results[0]

    def tracked(self, query_id: str) -> list[Item]:
        """Returns the tracker's items of a query and its subqueries: text and integers."""
        answer = self.client("dynamodb").query(
            TableName=self.properties()["sleeper.query.tracker.table.name"],
            KeyConditionExpression="queryId = :q",
            ExpressionAttributeValues={":q": {"S": query_id}},
            ConsistentRead=True,
        )
        return [
            {name: int(v["N"]) if "N" in v else v.get("S") for name, v in item.items()}
            for item in answer["Items"]
        ]

    def results(self, query_id: str, bucket: str | None = None) -> dict[str, pa.Table]:
        """Returns the results of a query in a bucket, by subquery. Listed once."""
        place = bucket or self.properties()["sleeper.query.results.bucket"]
        result = self.parquet_below(place, f"query-{query_id}/")
        return {key.rpartition("/")[2].removesuffix(".parquet"): t for key, t in result.items()}

    def parquet_below(self, bucket: str, prefix: str) -> dict[str, pa.Table]:
        """The Parquet files there, by key."""
        s3 = self.client("s3")
        listing = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        results = {}
        for key in (item["Key"] for item in listing if item["Key"].endswith(".parquet")):
            body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            results[key] = pq.read_table(io.BytesIO(body))
        return results

    def make_queue(self, name: str) -> str:
        """A queue of the client's own; its URL."""
        return str(self.client("sqs").create_queue(QueueName=name)["QueueUrl"])

    def received(self, url: str) -> list[Item]:
        """All messages of a queue, which holds them no longer."""
        sqs = self.client("sqs")
        results = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                results.append(json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return results

    def websocket_url(self) -> str:
        """The instance's WebSocket at the emulator's own address, which needs no DNS and no TLS."""
        name = urlsplit(self.properties()["sleeper.query.websocket.api.url"])
        server = urlsplit(self.client("sqs").meta.endpoint_url).netloc
        return f"ws://{server}/_aws/execute-api/{self.websocket_id()}{name.path}"

    def websocket_id(self) -> str:
        """The id of the API of the instance's WebSocket."""
        url = urlsplit(self.properties()["sleeper.query.websocket.api.url"])
        return url.netloc.partition(".")[0]

    @contextmanager
    def live(self, *, signed: bool = True) -> Iterator[ClientConnection]:
        """A connection to the instance's WebSocket."""
        url = self.websocket_url()
        request = AWSRequest("GET", url.replace("ws:", "http:", 1))
        if signed:
            session = boto3.Session()
            region = self.client("sqs").meta.region_name
            SigV4Auth(session.get_credentials(), "execute-api", region).add_auth(request)
        with connect(url, proxy=None, additional_headers=dict(request.headers)) as connection:
            yield connection

    def until(
        self,
        is_so: Callable[[], object],
        description: str,
        *,
        seconds: float = SECONDS_MAX,
        pause: float = 1.0,
    ) -> None:
        """Waits for a condition. AssertionError after a timeout."""
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"not yet: {description}"
            time.sleep(pause)


def frames_of(connection: ClientConnection, query: dict[str, Any]) -> list[Item]:
    """Sends a query; the frames up to those that end it, none later than clients wait."""
    connection.send(json.dumps(query))
    client = JavaClient(query.get("queryId", ""))
    frames: list[Item] = []
    while not client.is_finished:
        text = connection.recv(timeout=_SILENCE_SECONDS)
        assert len(text) <= 120 * 1024
        frames.append(json.loads(text))
        client.take(frames[-1])
    return frames


def encoded(text: str) -> str:
    """A string as regions have it that do not say otherwise."""
    return base64.b64encode(text.encode()).decode()
