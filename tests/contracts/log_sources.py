"""Streams that the suite of log inputs fills and reads."""

import itertools
import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import Producer

from sleeper.adjunct.inputs.kafka import KafkaInput
from sleeper.adjunct.inputs.log import LogInput, parse_stream_name
from tests.fake_log import FakeLog, FakeLogInput
from tests.servers.kafka import Kafka

_NAMES = itertools.count()


class LogSource(Protocol):
    """A stream with some partitions, and a service that can be stopped."""

    def open(self) -> LogInput:
        """Opens a new input of the stream."""

    def send(self, key: str, value: Any) -> None:
        """Adds a message, durably."""

    def send_invalid(self) -> None:
        """Adds a message that cannot be decoded to the partition of all others."""

    def end(self, dataset: str) -> None:
        """Adds the marker to each partition."""

    def recreate(self) -> None:
        """Deletes the stream and creates it again, empty."""

    def plain(self, value: Any) -> Any:
        """Returns the value that was sent, of the value of an envelope."""


@dataclass
class FakeSource:
    """The log in memory."""

    log: FakeLog = field(default_factory=FakeLog)

    def open(self) -> LogInput:
        return FakeLogInput(self.log)

    def send(self, key: str, value: Any) -> None:
        self.log.send(key, value)

    def end(self, dataset: str) -> None:
        self.log.end(dataset)

    def recreate(self) -> None:
        self.log.partitions = FakeLog().partitions

    def send_invalid(self) -> None:
        raise NotImplementedError

    def plain(self, value: Any) -> Any:
        return value


class KafkaSource:
    """A topic. Each message is a batch, as Tansu says of a batch only where it begins."""

    def __init__(self, server: Kafka, options: str = "") -> None:
        self.server = server
        self.topic = server.make_topic(f"log-{next(_NAMES)}")
        self.url = f"kafka://{server.address}/{self.topic}{options}"
        self.producer = make_producer(server)

    def open(self) -> LogInput:
        return KafkaInput(parse_stream_name("words", "kafka", self.url.removeprefix("kafka:")))

    def send(self, key: str | None, value: Any) -> None:
        content = None if value is None else json.dumps(value)
        self.produce(key=key, value=content)

    def send_invalid(self) -> None:
        self.produce(key="k", value="{")

    def end(self, dataset: str) -> None:
        for partition in range(3):
            headers: Any = {"sleeper-end-of-dataset": dataset}
            self.produce(value="", partition=partition, headers=headers)

    def recreate(self) -> None:
        self.server.delete_topic(self.topic)
        self.server.make_topic(self.topic)

    def plain(self, value: Any) -> Any:
        return value

    def produce(self, **message: Any) -> None:
        self.producer.produce(self.topic, **message)
        assert self.producer.flush(30) == 0


def make_producer(server: Kafka) -> Producer:
    """Returns a producer whose batches have one message."""
    return Producer(
        {"bootstrap.servers": server.address, "batch.num.messages": 1, "log_level": 2},
    )
