"""A table of DynamoDB as input of adjunct stores: `dynamodb:TABLE`, its items and its stream."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import Binary, TypeDeserializer
from botocore.exceptions import ClientError

from sleeper.adjunct.aws.shards import (
    ExpiredIteratorError,
    Shard,
    ShardedLog,
    ShardPage,
    TrimmedError,
    next_offset,
)
from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.inputs.log import LogInput, StreamName, decode_message
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.aws.clients import aws_client
from sleeper.aws.errors import MissingResourceError, error_code, translate_errors
from sleeper.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_RETENTION_MS = 24 * 3_600_000 - 60_000
_VIEWS = ("NEW_IMAGE", "NEW_AND_OLD_IMAGES")
_RECORDS = 1_000
_LONG_MAX = 2**63
_deserialize = TypeDeserializer().deserialize


def open_input(request: InputRequest) -> LogInput:
    """Opens the stream of `dynamodb:TABLE`."""
    return open_dynamodb(request.stream_name())


def open_dynamodb(name: StreamName) -> LogInput:
    """Opens a table. InvalidRequestError if it has options; connects to nothing."""
    name.check_options(())
    return ShardedLog(TableStream(name), has_snapshot=True)


class TableStream:
    """See `ShardService`. The key of an item is its primary key, its value all other attributes."""

    retention_ms = _RETENTION_MS

    def __init__(self, name: StreamName) -> None:
        self.name = f"dynamodb:{name.target}"
        self.created = ""
        self.created_ms = 0
        self._where = name.where
        self._table = name.target
        self._tables: DynamoDBClient = aws_client("dynamodb")
        self._streams: Any = aws_client("dynamodbstreams")
        self._arn = ""
        self._keys: list[str] = []
        self._empty: set[str] = set()

    def list_shards(self) -> Sequence[Shard]:
        """See the port. InvalidRequestError if the table has no stream of new images."""
        self._describe_table()
        shards: list[Any] = []
        with translate_errors(self.name):
            request = {"StreamArn": self._arn}
            while True:
                description = self._streams.describe_stream(**request)["StreamDescription"]
                shards += description["Shards"]
                last = description.get("LastEvaluatedShardId")
                if last is None:
                    break
                request["ExclusiveStartShardId"] = last
        return [
            Shard(each["ShardId"], tuple(p for p in (each.get("ParentShardId"),) if p))
            for each in shards
        ]

    def find_iterator(self, shard: str, offset: str | None) -> str:
        request = {
            "StreamArn": self._arn,
            "ShardId": shard,
            "ShardIteratorType": "TRIM_HORIZON",
        }
        if offset is not None:
            request |= {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "SequenceNumber": offset,
            }
        with translate_errors(self.name), _own_errors():
            return str(self._streams.get_shard_iterator(**request)["ShardIterator"])

    def read(self, shard: str, iterator: str) -> ShardPage:
        """See the port. A page may be empty before the end, so two of them are an end."""
        with translate_errors(self.name), _own_errors():
            page = self._streams.get_records(ShardIterator=iterator, Limit=_RECORDS)
        records, following = page["Records"], page.get("NextShardIterator")
        is_end = not records and shard in self._empty
        (self._empty.discard if records else self._empty.add)(shard)
        messages = [partial(self._decode, shard, each["dynamodb"]) for each in records]
        return ShardPage(messages, following, is_end)

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        """See the port. Each page is read consistently."""
        pages = self._tables.get_paginator("scan").paginate(
            TableName=self._table, ConsistentRead=True
        )
        with translate_errors(self.name):
            for page in pages:
                yield [self._as_envelope("items", "0", "0", e, e) for e in page["Items"]]

    def _describe_table(self) -> None:
        try:
            with translate_errors(self.name):
                table = self._tables.describe_table(TableName=self._table)["Table"]
        except MissingResourceError as error:
            raise NotFoundError(str(error)) from error
        view = table.get("StreamSpecification", {}).get("StreamViewType")
        if view not in _VIEWS:
            raise InvalidRequestError(
                f"{self._where}: the stream of the table has {view or 'not been enabled'} "
                f"(expected {' or '.join(_VIEWS)})"
            )
        self._arn, self.created = table["LatestStreamArn"], table["LatestStreamLabel"]
        schema = sorted(table["KeySchema"], key=lambda each: each["KeyType"] != "HASH")
        self._keys = [each["AttributeName"] for each in schema]

    def _decode(self, shard: str, record: Mapping[str, Any]) -> Envelope:
        offset = record["SequenceNumber"]
        position = (shard, offset, next_offset(offset))
        return decode_message(
            *(self.name, shard, offset),
            lambda: self._as_envelope(*position, record["Keys"], record.get("NewImage")),
        )

    def _as_envelope(
        self,
        shard: str,
        offset: str,
        following: str,
        keys: Mapping[str, Any],
        image: Mapping[str, Any] | None,
    ) -> Envelope:
        values = [to_plain(_deserialize(keys[each])) for each in self._keys]
        key = values[0] if len(values) == 1 else tuple(values)
        value = None
        if image is not None:
            others = (each for each in image if each not in self._keys)
            value = {each: to_plain(_deserialize(image[each])) for each in others}
        return Envelope(self.name, shard, offset, following, key, value)


def to_plain(value: Any) -> Any:
    """Returns an attribute's value without types of DynamoDB.

    A number is an int if it is whole and has 64 bits, otherwise a float. A set is a list in order.
    """
    match value:
        case Decimal():
            is_long = value == value.to_integral_value() and -_LONG_MAX <= value < _LONG_MAX
            return int(value) if is_long else float(value)
        case Binary():
            return bytes(value)
        case set():
            return sorted(to_plain(each) for each in value)
        case list():
            return [to_plain(each) for each in value]
        case dict():
            return {each: to_plain(inner) for each, inner in value.items()}
    return value


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if error_code(error) == "ExpiredIteratorException":
            raise ExpiredIteratorError from error
        if error_code(error) == "TrimmedDataAccessException":
            raise TrimmedError from error
        raise
