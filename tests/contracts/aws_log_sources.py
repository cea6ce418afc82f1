"""Streams of Kinesis and tables of DynamoDB that the suite of log inputs fills and reads."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from boto3.dynamodb.types import TypeSerializer
from moto import mock_aws

from sleeper.adjunct.aws.dynamodb_stream import open_dynamodb
from sleeper.adjunct.aws.kinesis_stream import open_kinesis
from sleeper.adjunct.inputs.log import LogInput, parse_stream_name
from tests.servers.aws_clients import forget_clients
from tests.servers.ministack import REGION, Ministack

_NAMES = itertools.count()
_serialize = TypeSerializer().serialize


class KinesisSource:
    """A stream with two shards."""

    def __init__(self, server: Ministack | None = None, options: str = "?dataset=bounded") -> None:
        self.client = boto3.client("kinesis")
        self.stream = f"log-{next(_NAMES)}"
        self._server = server
        self._options = options
        self.create()

    def create(self) -> None:
        self.client.create_stream(StreamName=self.stream, ShardCount=2)
        self.client.get_waiter("stream_exists").wait(StreamName=self.stream)

    def open(self) -> LogInput:
        return open_kinesis(parse_stream_name("words", "kinesis", self.stream + self._options))

    def send(self, key: str, value: Any) -> None:
        content = b"" if value is None else json.dumps(value).encode()
        self.client.put_record(StreamName=self.stream, PartitionKey=key, Data=content)

    def send_invalid(self) -> None:
        self.client.put_record(StreamName=self.stream, PartitionKey="k", Data=b"{")

    def end(self, dataset: str) -> None:
        content = json.dumps({"sleeper-end-of-dataset": dataset}).encode()
        for shard in self.client.list_shards(StreamName=self.stream)["Shards"]:
            if "EndingSequenceNumber" not in shard["SequenceNumberRange"]:
                self.client.put_record(
                    StreamName=self.stream,
                    PartitionKey="end",
                    ExplicitHashKey=shard["HashKeyRange"]["StartingHashKey"],
                    Data=content,
                )

    def recreate(self) -> None:
        self.client.delete_stream(StreamName=self.stream)
        if self._server is not None:
            self._server.pass_seconds(2)  # it knows the time of creation in seconds
        self.create()

    def plain(self, value: Any) -> Any:
        return value


class TableSource:
    """A table whose items have a key and a value."""

    def __init__(self, server: Ministack | None = None, view: str | None = "NEW_IMAGE") -> None:
        self.client = boto3.client("dynamodb")
        self.table = f"log-{next(_NAMES)}"
        self._server = server
        self._view = view
        self.create()

    def create(self) -> None:
        enabled = {"StreamEnabled": True, "StreamViewType": self._view}
        more: Any = {} if self._view is None else {"StreamSpecification": enabled}
        self.client.create_table(
            TableName=self.table,
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            **more,
        )
        self.client.get_waiter("table_exists").wait(TableName=self.table)

    def open(self) -> LogInput:
        return open_dynamodb(parse_stream_name("words", "dynamodb", self.table))

    def send(self, key: str, value: Any) -> None:
        item = {"id": _serialize(key)}
        if value is None:
            self.client.delete_item(TableName=self.table, Key=item)
        else:
            self.client.put_item(TableName=self.table, Item={**item, "value": _serialize(value)})

    def send_invalid(self) -> None:
        raise NotImplementedError

    def end(self, dataset: str) -> None:
        raise NotImplementedError

    def recreate(self) -> None:
        self.client.delete_table(TableName=self.table)
        if self._server is not None:
            self._server.pass_seconds(2)
        self.create()

    def plain(self, value: Any) -> Any:
        return None if value is None else value["value"]


@contextmanager
def moto_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Directs all clients to moto."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        forget_clients()
        yield
    forget_clients()


@contextmanager
def ministack_clients(server: Ministack, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Directs all clients to the emulator."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    forget_clients()
    yield
    forget_clients()
