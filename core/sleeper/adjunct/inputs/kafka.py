"""A topic of Kafka as input: `kafka://BROKER:PORT[,BROKER:PORT]/TOPIC[?OPTIONS]`.

The client reads partitions from given offsets, without a consumer group. Messages of transactions
are read when these are committed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.inputs.log import (
    DATASET,
    FORMAT_OPTIONS,
    MARKER,
    LogBatch,
    MessageFormat,
    StreamName,
    decode_message,
)
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.kafka_connection import (
    CONNECTION_OPTIONS,
    TARGET,
    Client,
    check_connection,
    check_installed,
    make_client,
    split_target,
)
from sleeper.runs.secrets import read_secret_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka.admin import AdminClient

PASSWORD = "password"
_OPTIONS = CONNECTION_OPTIONS | FORMAT_OPTIONS | {DATASET, PASSWORD}
_REQUEST_SECONDS = 5.0
_POLL_SECONDS = 1.0
_BATCH_MESSAGES = 4_096
_TOPIC_ID = "topic_id"
# TIMESTAMP_NOT_AVAILABLE of confluent_kafka, which is imported only to connect.
_NO_TIMESTAMP = 0
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# What the client fetches ahead, which bounds the memory.
_QUEUE_KIBIBYTES = 16 * 1024


def check_kafka(name: StreamName) -> None:
    """Raises InvalidRequestError if the topic or the options are invalid. Connects to nothing."""
    name.check_options(_OPTIONS)
    options = {each: text for each, text in name.options.items() if each in CONNECTION_OPTIONS}
    check_connection(name.where, name.target, options, PASSWORD in name.options, "password=")
    if re.fullmatch(TARGET, name.target) is None:
        raise InvalidRequestError(f"{name.where} is invalid (expected kafka://BROKER:PORT/TOPIC)")
    name.message_format()
    check_installed(name.where)


class KafkaInput:
    """See `LogInput`. `password` is that of the option sasl.username."""

    has_fixed_partitions = True
    has_snapshot = False

    def __init__(self, name: StreamName, password: str | None = None) -> None:
        check_kafka(name)
        brokers, self._topic = split_target(name.target)
        self.name = f"kafka:{name.target}"
        self._format: MessageFormat = name.message_format()
        self._problem = ""
        self._where, self._password = name.where, password
        self._settings = {
            **{each: text for each, text in name.options.items() if each in CONNECTION_OPTIONS},
            "bootstrap.servers": brokers,
        }
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self._partitions: list[int] = []
        self._topic_id: str | None = None
        self._next: dict[int, int | None] | None = None

    def partitions(self, positions: Mapping[str, str]) -> Sequence[str]:
        """See the protocol. A partition that is added later is seen by `newest`."""
        del positions  # all partitions are open
        return [str(number) for number in self._partitions or self._find_partitions()]

    def newest(self, positions: Mapping[str, str]) -> Mapping[str, str]:
        numbers = self._find_partitions()
        newest = self._list_offsets(numbers, is_newest=True)
        if self._topic_id not in (None, positions.get(_TOPIC_ID, self._topic_id)):
            raise StateMovedOnError(f"{self.name}: the topic was deleted and created again")
        offsets = {int(each): int(at) for each, at in positions.items() if each.isdecimal()}
        if any(at != newest.get(number) for number, at in offsets.items()):
            oldest = self._list_offsets(numbers, is_newest=False)
            for number, at in offsets.items():
                self._check(number, at, oldest.get(number, 0), newest.get(number, 0))
        return {str(number): str(offset) for number, offset in newest.items()}

    def is_whole(self) -> bool:
        oldest = self._list_offsets(self._find_partitions(), is_newest=False)
        return not any(oldest.values())

    def complete(self, positions: Mapping[str, str], read_ms: int) -> dict[str, str]:
        """See the protocol. A topic that is deleted and created again has another id."""
        del read_ms
        return {**positions, **({} if self._topic_id is None else {_TOPIC_ID: self._topic_id})}

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        """See the protocol. There is none."""
        return iter(())

    def poll(self, positions: Mapping[str, str], partitions: Sequence[str]) -> LogBatch:
        wanted = {int(each): _as_number(positions.get(each)) for each in partitions}
        consumer = self._assign(wanted)
        self._next = None  # until this call has succeeded
        self._problem = ""
        messages = consumer.consume(1, _POLL_SECONDS)
        if messages:
            messages += consumer.consume(_BATCH_MESSAGES, 0)
        batch, is_whole = self._read(messages)
        if is_whole:
            self._next = wanted | {int(each): int(at) for each, at in batch.positions.items()}
        if not messages and self._problem:
            raise UnavailableError(f"{self.name}: {self._problem}")
        return batch

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        self._admin = None

    def _read(self, messages: "Sequence[Message]") -> tuple[LogBatch, bool]:
        """Returns the messages up to one that cannot be decoded, and whether these are all.

        If it is the first, its error is raised.
        """
        envelopes: list[Envelope] = []
        positions: dict[str, str] = {}
        for message in messages:
            partition = str(message.partition())
            error = message.error()
            if error is not None:
                self._take_error(error, message, positions)
                continue
            try:
                envelope = self._decode(message, partition, message.offset() or 0)
            except DataError:
                if not positions:
                    raise
                return LogBatch(envelopes, positions), False
            envelopes.append(envelope)
            positions[partition] = envelope.next_offset
        return LogBatch(envelopes, positions), True

    def _decode(self, message: "Message", partition: str, offset: int) -> Envelope:
        where = (self.name, partition, str(offset))

        def decode() -> Envelope:
            headers: Any = message.headers() or ()
            for name, content in headers:
                if name == MARKER:
                    text = content.decode() if isinstance(content, bytes) else str(content)
                    return Envelope(*where, str(offset + 1), None, text, True)
            key = self._format.decode_key(message.key())
            value = self._format.decode_value(message.value()) if key is not None else None
            kind, time_ms = message.timestamp()
            sent_ms = None if kind == _NO_TIMESTAMP else time_ms
            return Envelope(*where, str(offset + 1), key, value, time_ms=sent_ms)

        return decode_message(*where, decode)

    def _take_error(
        self, error: "KafkaError", message: "Message", positions: dict[str, str]
    ) -> None:
        """Takes the end of a partition, and raises other errors."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            positions[str(message.partition())] = str(message.offset())
            return
        raise self._translate(error)

    def _translate(self, error: "KafkaError") -> SleeperError:
        from confluent_kafka import KafkaError

        text = f"{self.name}: {error.str()}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return StateMovedOnError(text)
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return NotFoundError(text)
        return UnavailableError(text)

    def _check(self, number: int, position: int, oldest: int, newest: int) -> None:
        where = f"{self.name}, partition {number}"
        if position < oldest:
            raise StateMovedOnError(
                f"{where}: messages before offset {oldest} are gone (expected those from "
                f"{position} on)"
            )
        if position > newest:
            raise StateMovedOnError(
                f"{where}: the topic went back: its next offset is {newest} (expected {position})"
            )

    def _assign(self, wanted: "dict[int, int | None]") -> "Consumer":
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        if self._consumer is None:
            self._next = None
            self._consumer = self._make(
                Consumer,
                **{
                    "group.id": "sleeper-adjunct",  # required, but no offset is committed
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "queued.max.messages.kbytes": _QUEUE_KIBIBYTES,
                },
            )
        if wanted != self._next:
            assigned = [
                TopicPartition(self._topic, number, OFFSET_BEGINNING if at is None else at)
                for number, at in wanted.items()
            ]
            self._consumer.assign(assigned)
        return self._consumer

    def _find_partitions(self) -> list[int]:
        """Returns the numbers of the topic's partitions. NotFoundError if there is no topic."""
        from confluent_kafka import TopicCollection

        topics = TopicCollection([self._topic])
        (topic,) = self._request("describe_topics", topics).values()
        topic_id = str(topic.topic_id)
        self._topic_id = None if topic_id == _NO_ID else topic_id
        self._partitions = sorted(each.id for each in topic.partitions)
        return self._partitions

    def _list_offsets(self, numbers: Sequence[int], is_newest: bool) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        specs: Any = OffsetSpec
        spec = specs.latest() if is_newest else specs.earliest()
        wanted = {TopicPartition(self._topic, number): spec for number in numbers}
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED
        results = self._request("list_offsets", wanted, isolation_level=level)
        return {each.partition: result.offset for each, result in results.items()}

    def _request(self, name: str, subject: Any, **settings: Any) -> dict[Any, Any]:
        """Returns the results of a request of the administration's client, by its method's name."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = self._make(AdminClient)
        self._problem = ""
        try:
            request = getattr(self._admin, name)
            futures = request(subject, request_timeout=_REQUEST_SECONDS, **settings)
            return {each: future.result() for each, future in futures.items()}
        except KafkaException as error:
            self._admin.poll(0)  # calls `_note_error`
            failure = self._translate(error.args[0])
            if isinstance(failure, UnavailableError) and self._problem:
                raise UnavailableError(f"{self.name}: {self._problem}") from error
            raise failure from error

    def _make(self, client: Callable[[dict[str, Any]], Client], **more: Any) -> Client:
        settings = {**self._settings, **more}
        return make_client(self._where, client, settings, self._password, self._note_error)

    def _note_error(self, error: "KafkaError") -> None:
        # That all brokers are down follows the reason of each.
        self._problem = self._problem or error.str()


def open_input(request: InputRequest) -> KafkaInput:
    """Opens the topic of `kafka://BROKER:PORT/TOPIC`."""
    name = request.stream_name()
    check_kafka(name)
    reference = name.options.get(PASSWORD)
    password = None if reference is None else read_secret_of(request.instance, reference)
    return KafkaInput(name, password)


def _as_number(position: str | None) -> int | None:
    return None if position is None else int(position)
