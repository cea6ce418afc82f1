"""Sends exports to a topic of Kafka: `kafka://BROKER[:PORT][,BROKER[:PORT]]/TOPIC`.

A message has the text of the key as its key, the JSON of the export as its value, and the headers
`queue` and `sequence`. A key that is gone is a message without value, which is a tombstone of a
compacted topic; with the option `tombstones=false` it is the JSON of the export too.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import UnavailableError
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError
from sleeper.export_queue.exporters.json_values import export_texts, key_texts
from sleeper.export_queue.exporters.options import (
    check_options,
    check_text,
    exporter_name,
    read_flag,
)
from sleeper.instance import Instance
from sleeper.kafka_connection import (
    CONNECTION_OPTIONS,
    TARGET,
    check_connection,
    check_installed,
    make_client,
    split_target,
)
from sleeper.runs.secrets import read_secret

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_CLIENT_OPTIONS = CONNECTION_OPTIONS | {
    "batch.size",
    "compression.type",
    "linger.ms",
    "message.max.bytes",
    "partitioner",
}
_OPTIONS = _CLIENT_OPTIONS | {"tombstones"}
# The drain ends the process of a call that takes longer than the queue's timeout.
_PART_FOR_DELIVERY = 0.7
_PART_FOR_FLUSH = 0.8
_LINGER_MILLISECONDS = 5
_DELIVERY_MILLISECONDS_MIN = 100
_POLL_SECONDS = 0.1


def check(_instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if the settings are invalid. Connects to nothing."""
    check_options(queue, _OPTIONS)
    where, target, options = exporter_name(queue), queue.exporter.target, queue.exporter.options
    has_password = queue.exporter.password is not None
    check_connection(where, target, options, has_password, "--password")
    check_text(queue, "target", target, TARGET, "kafka://BROKER:PORT/TOPIC")
    read_flag(queue, "tombstones", default=True)
    # The files and the password are on the machine of the exporter.
    plain = {name: value for name, value in options.items() if not name.endswith(".location")}
    without_files = replace(queue, exporter=replace(queue.exporter, options=plain))
    _make_producer(without_files, "unknown", lambda _error: None)


def make(instance: Instance, queue: ExportQueue) -> "KafkaExporter":
    """Returns the exporter."""
    check(instance, queue)
    password = queue.exporter.password
    return KafkaExporter(queue, None if password is None else read_secret(instance, password))


class KafkaExporter:
    """Sends each batch by an idempotent producer, and waits until all replicas have it."""

    def __init__(self, queue: ExportQueue, password: str | None) -> None:
        self._queue = queue
        self._password = password
        self._topic = split_target(queue.exporter.target)[1]
        self._where = f"{queue.exporter.kind}:{queue.exporter.target}"
        self._sends_tombstones = read_flag(queue, "tombstones", default=True)
        self._connection_error = ""
        self._producer: Producer | None = _make_producer(queue, password, self._note_error)

    def export(self, batch: ExportBatch) -> None:
        """See the protocol."""
        if self._producer is None:
            self._producer = _make_producer(self._queue, self._password, self._note_error)
        self._connection_error = ""
        failed: dict[int, KafkaError] = {}
        try:
            missing = self._send(self._producer, batch, failed)
        except BaseException:
            self._drop_producer()
            raise
        if not failed and not missing:
            return
        reasons = {
            position: error.str() for position, error in failed.items() if _is_refusal(error)
        }
        lost = [error.str() for error in failed.values() if not _is_refusal(error)]
        if lost or missing:
            problem = next(filter(None, [self._connection_error, *lost]), "no answer in time")
            # Messages that are still in its buffer would arrive after those of the next call.
            self._drop_producer()
            raise UnavailableError(
                f"{self._where}: {len(lost) + missing:,} of {len(batch):,} messages were not "
                f"delivered: {problem}"
            )
        raise RefusedExportsError(reasons)

    def close(self) -> None:
        """See the protocol."""
        self._drop_producer()

    def _send(
        self, producer: "Producer", batch: ExportBatch, failed: "dict[int, KafkaError]"
    ) -> int:
        """Sends the batch and returns the number of messages without a result."""
        keys = key_texts(batch).cast(pa.binary())
        values = export_texts(batch).cast(pa.binary())
        if self._sends_tombstones:
            values = pc.if_else(batch.rows.column(TOMBSTONE), pa.scalar(None, pa.binary()), values)
        sequences = batch.rows.column(SEQUENCE).cast(pa.string())
        columns = (each.to_pylist() for each in (keys, values, sequences))
        for position, (key, value, sequence) in enumerate(zip(*columns, strict=True)):
            headers: Any = [("queue", self._queue.name), ("sequence", sequence)]
            self._produce(producer, position, key, value, headers, failed)
        return producer.flush(self._queue.timeout_seconds * _PART_FOR_FLUSH)

    def _produce(
        self,
        producer: "Producer",
        position: int,
        key: bytes,
        value: bytes | None,
        headers: Any,
        failed: "dict[int, KafkaError]",
    ) -> None:
        from confluent_kafka import KafkaException

        def record(error: "KafkaError | None", _message: "Message") -> None:
            if error is not None:
                failed[position] = error

        while True:
            try:
                producer.produce(
                    self._topic, key=key, value=value, headers=headers, on_delivery=record
                )
                return
            except BufferError:  # messages leave the buffer when they are delivered or expire
                producer.poll(_POLL_SECONDS)
            except KafkaException as error:
                failed[position] = error.args[0]
                return

    def _note_error(self, error: "KafkaError") -> None:
        # That all brokers are down follows the reason of each.
        self._connection_error = self._connection_error or error.str()

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0)


def _make_producer(
    queue: ExportQueue, password: str | None, on_error: "Callable[[KafkaError], None]"
) -> "Producer":
    """Returns a producer, which connects later. InvalidRequestError without secrets."""
    check_installed(exporter_name(queue))
    from confluent_kafka import Producer

    options = queue.exporter.options
    milliseconds = max(
        int(queue.timeout_seconds * 1000 * _PART_FOR_DELIVERY), _DELIVERY_MILLISECONDS_MIN
    )
    settings: dict[str, Any] = {
        "linger.ms": _LINGER_MILLISECONDS,
        # The partitions that Java's producers choose.
        "partitioner": "murmur2_random",
        **{name: value for name, value in options.items() if name in _CLIENT_OPTIONS},
        "bootstrap.servers": split_target(queue.exporter.target)[0],
        "enable.idempotence": True,
        "acks": "all",
        "delivery.timeout.ms": milliseconds,
    }
    return make_client(exporter_name(queue), Producer, settings, password, on_error)


def _is_refusal(error: "KafkaError") -> bool:
    """Returns whether the broker or the client refuses this message and would take others."""
    from confluent_kafka import KafkaError

    return error.code() in {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
