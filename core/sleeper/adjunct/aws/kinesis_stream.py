"""A stream of Kinesis as input of adjunct stores: `kinesis:STREAM[?OPTIONS]`."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

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
from sleeper.adjunct.inputs.log import (
    DATASET,
    FORMAT_OPTIONS,
    LogInput,
    StreamName,
    decode_message,
    parse_marker,
)
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.aws.clients import aws_client
from sleeper.aws.errors import MissingResourceError, error_code, translate_errors
from sleeper.errors import NotFoundError

_EXPIRED = "ExpiredIteratorException"
_INVALID = "InvalidArgumentException"
_HOUR_MS = 3_600_000
# The clocks of a store and of the service differ.
_MARGIN_MS = 60_000
_RECORDS = 2_000
_PAGES = 20
_PAGE_SECONDS = 0.25


def open_input(request: InputRequest) -> LogInput:
    """Opens the stream of `kinesis:STREAM[?OPTIONS]`."""
    return open_kinesis(request.stream_name())


def open_kinesis(name: StreamName) -> LogInput:
    """Opens a stream. InvalidRequestError if an option is invalid; connects to nothing."""
    name.check_options(FORMAT_OPTIONS | {DATASET})
    return ShardedLog(KinesisStream(name), has_snapshot=False)


class KinesisStream:
    """See `ShardService`. The partition key of a record is its key."""

    def __init__(self, name: StreamName) -> None:
        self.name = f"kinesis:{name.target}"
        self.created = ""
        self.created_ms = self.retention_ms = 0
        self._stream = name.target
        self._format = name.message_format()
        self._is_bounded = name.is_bounded
        self._client: Any = aws_client("kinesis")
        self._closed: set[str] = set()

    def list_shards(self) -> Sequence[Shard]:
        try:
            with translate_errors(self.name):
                described = self._client.describe_stream_summary(StreamName=self._stream)
                pages = self._client.get_paginator("list_shards").paginate(StreamName=self._stream)
                shards = [each for page in pages for each in page["Shards"]]
        except MissingResourceError as error:
            raise NotFoundError(str(error)) from error
        summary = described["StreamDescriptionSummary"]
        self.created_ms = int(summary["StreamCreationTimestamp"].timestamp() * 1000)
        self.created = str(self.created_ms)
        self.retention_ms = summary["RetentionPeriodHours"] * _HOUR_MS - _MARGIN_MS
        self._closed = {
            each["ShardId"]
            for each in shards
            if each["SequenceNumberRange"].get("EndingSequenceNumber") is not None
        }
        parents = ("ParentShardId", "AdjacentParentShardId")
        return [
            Shard(each["ShardId"], tuple(each[p] for p in parents if each.get(p)))
            for each in shards
        ]

    def find_iterator(self, shard: str, offset: str | None) -> str:
        """See the port. The service begins with the oldest record if that of the number is gone."""
        start = {"StreamName": self._stream, "ShardId": shard}
        if offset is None:
            return self._find_iterator(**start, ShardIteratorType="TRIM_HORIZON")
        iterator = self._find_iterator(
            **start, ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=offset
        )
        for _ in range(_PAGES):
            page = self._get_records(iterator, 1)
            numbers = [each["SequenceNumber"] for each in page["Records"]]
            iterator = page.get("NextShardIterator")
            if numbers or not page["MillisBehindLatest"] or iterator is None:
                break
            time.sleep(_PAGE_SECONDS)
        if numbers != [offset]:
            raise TrimmedError
        return self._find_iterator(
            **start, ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=offset
        )

    def read(self, shard: str, iterator: str) -> ShardPage:
        page = self._get_records(iterator, _RECORDS)
        records = page["Records"]
        is_end, is_closed = page["MillisBehindLatest"] == 0, shard in self._closed
        following = page.get("NextShardIterator")
        if is_end and not records and is_closed:
            following = None
        messages = [partial(self._decode, shard, each) for each in records]
        return ShardPage(messages, following, following is None or (is_end and not is_closed))

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        """See the port. There is none."""
        return iter(())

    def _decode(self, shard: str, record: dict[str, Any]) -> Envelope:
        offset, content = record["SequenceNumber"], record["Data"]
        position = (self.name, shard, offset)

        def decode() -> Envelope:
            dataset = parse_marker(content) if self._is_bounded else None
            if dataset is not None:
                return Envelope(*position, next_offset(offset), None, dataset, True)
            key = self._format.decode_key(record["PartitionKey"])
            value = self._format.decode_value(content or None)
            arrival = record.get("ApproximateArrivalTimestamp")
            time_ms = None if arrival is None else int(arrival.timestamp() * 1000)
            return Envelope(*position, next_offset(offset), key, value, time_ms=time_ms)

        return decode_message(*position, decode)

    def _get_records(self, iterator: str, limit: int) -> Any:
        with translate_errors(self.name):
            try:
                return self._client.get_records(ShardIterator=iterator, Limit=limit)
            except ClientError as error:
                if error_code(error) == _EXPIRED:
                    raise ExpiredIteratorError from error
                raise

    def _find_iterator(self, **request: Any) -> str:
        with translate_errors(self.name):
            try:
                return str(self._client.get_shard_iterator(**request)["ShardIterator"])
            except ClientError as error:
                if error_code(error) == _INVALID:
                    raise TrimmedError from error
                raise
