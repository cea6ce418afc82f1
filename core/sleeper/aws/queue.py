"""Message queues in SQS, standard and FIFO.

It differs from a local queue where SQS does: only FIFO queues keep order, a receive returns at
most ten messages, a delay is at most 15 minutes and not possible for a single message of a FIFO
queue, and a message that is returned with a delay counts as in flight. Counts are approximate.
"""

import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from sleeper.aws.clients import partial_request_backoff
from sleeper.aws.errors import MissingResourceError, ThrottledError, error_code, translate_errors
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.jobs.queue import MESSAGE_BYTES_MAX, Failure, Message, QueueCounts
from sleeper.retries import retry

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

RECEIVE_MAX = 10
_WAIT_SECONDS_MAX = 20
_DELAY_SECONDS_MAX = 900
_VISIBILITY_SECONDS_MAX = 43_200
_FIFO = ".fifo"
_BATCH_MESSAGES = 10
# Below the limit of SQS, because other servers keep its former limit.
_BATCH_BYTES = 262_144
# The errors for a receipt whose message is deleted, or was received again.
_STALE_RECEIPT = {"MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue"}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send. On a FIFO queue it has a group and a deduplication id."""

    body: str
    group: str | None = None
    deduplication_id: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def members(self) -> dict[str, Any]:
        """Returns its members in a request."""
        members: dict[str, Any] = {"MessageBody": self.body}
        if self.group is not None:
            members["MessageGroupId"] = self.group
            members["MessageDeduplicationId"] = self.deduplication_id or uuid.uuid4().hex
        if self.attributes:
            members["MessageAttributes"] = self.attributes
        return members


def check_size(queue: str, body: str) -> int:
    """Returns the body's bytes. InvalidRequestError if SQS does not accept so many, or none."""
    size = len(body.encode())
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"queue {queue!r}: a message has {size:,} bytes "
            f"(expected at most {MESSAGE_BYTES_MAX:,})"
        )
    if not size:
        raise InvalidRequestError(f"queue {queue!r}: a message cannot be empty")
    return size


def send_batches(
    client: "SQSClient", queue: str, url: str, messages: Iterable[Outgoing]
) -> list[str]:
    """Sends messages, ten per request; returns their ids in order. An error may leave some sent."""
    return [
        message_id
        for batch in _batches(queue, messages)
        for message_id in _send_batch(client, queue, url, batch)
    ]


def _batches(queue: str, messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    batch: list[Outgoing] = []
    batch_bytes = 0
    for message in messages:
        size = check_size(queue, message.body)
        if batch and (len(batch) == _BATCH_MESSAGES or batch_bytes + size > _BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(message)
        batch_bytes += size
    if batch:
        yield batch


def _send_batch(client: "SQSClient", queue: str, url: str, batch: Sequence[Outgoing]) -> list[str]:
    # A repeated request repeats the deduplication ids.
    waiting: dict[str, Any] = {str(i): {"Id": str(i), **m.members()} for i, m in enumerate(batch)}
    sent: dict[str, str] = {}

    def attempt() -> None:
        with translate_errors(f"queue {queue!r}"):
            response = client.send_message_batch(QueueUrl=url, Entries=list(waiting.values()))
        for done in response.get("Successful", ()):
            sent[done["Id"]] = done["MessageId"]
            del waiting[done["Id"]]
        _raise_sender_fault(queue, response.get("Failed", ()))
        if waiting:
            raise ThrottledError(f"queue {queue!r}: {len(waiting)} messages were not sent")

    retry(attempt, on=ThrottledError, backoff=partial_request_backoff())
    return [sent[str(i)] for i in range(len(batch))]


def _raise_sender_fault(queue: str, failed: Iterable[Mapping[str, object]]) -> None:
    for each in failed:
        if each.get("SenderFault"):
            raise InvalidRequestError(
                f"queue {queue!r}: {each.get('Code')}: {each.get('Message', '')}"
            )


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """Implements `sleeper.jobs.queue.MessageQueue`.

    Errors name the queue `name`. The deployed queue sets visibility timeout and number of
    receives. Safe for threads.
    """

    client: "SQSClient"
    name: str
    url: str
    dead_letters_url: str

    def send(
        self,
        body: str,
        delay_seconds: float = 0,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        self._check_group(group is not None)
        self._check_deduplication(deduplication_id is not None)
        if delay_seconds and (is_fifo(self.url) or delay_seconds > _DELAY_SECONDS_MAX):
            most = 0 if is_fifo(self.url) else _DELAY_SECONDS_MAX
            raise InvalidRequestError(
                f"queue {self.name!r} delays a message by at most {most} s, not {delay_seconds}"
            )
        check_size(self.name, body)
        members = Outgoing(body, group, deduplication_id).members()
        if delay_seconds:
            members["DelaySeconds"] = math.ceil(delay_seconds)
        with translate_errors(f"queue {self.name!r}"):
            return str(self.client.send_message(QueueUrl=self.url, **members)["MessageId"])

    def send_all(
        self,
        bodies: Sequence[str],
        groups: Sequence[str] | None = None,
        deduplication_ids: Sequence[str] | None = None,
    ) -> None:
        """See the port. Each request sends ten."""
        self._check_group(groups is not None)
        self._check_deduplication(deduplication_ids is not None)
        nothing = [None] * len(bodies)
        members = zip(bodies, groups or nothing, deduplication_ids or nothing, strict=True)
        send_batches(self.client, self.name, self.url, [Outgoing(*each) for each in members])

    def receive(self, messages_max: int = 1, wait_seconds: float = 0) -> tuple[Message, ...]:
        """See the port. At most ten."""
        deadline = time.monotonic() + wait_seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            with translate_errors(f"queue {self.name!r}"):
                response = self.client.receive_message(
                    QueueUrl=self.url,
                    MaxNumberOfMessages=min(messages_max, RECEIVE_MAX),
                    WaitTimeSeconds=min(math.ceil(left), _WAIT_SECONDS_MAX),
                    MessageSystemAttributeNames=["All"],
                )
            received = tuple(_message(raw) for raw in response.get("Messages", ()))
            if received or time.monotonic() >= deadline:
                return received

    def extend(self, receipt: str, seconds: float) -> None:
        """See the port. SQS keeps a message in flight for 12 hours in all."""
        if not self._set_visibility(receipt, seconds):
            raise StateMovedOnError(
                f"queue {self.name!r}: the message with receipt {receipt[:20]} is no longer held"
            )

    def delete(self, receipt: str) -> None:
        try:
            with translate_errors(f"queue {self.name!r}"):
                self.client.delete_message(QueueUrl=self.url, ReceiptHandle=receipt)
        except Exception as error:
            if not _is_stale_receipt(error):
                raise

    def release(
        self,
        receipt: str,
        delay_seconds: float = 0,
        failure: Failure | None = None,  # noqa: ARG002 # SQS counts receives and keeps no reasons
    ) -> None:
        self._set_visibility(receipt, delay_seconds)

    def counts(self) -> QueueCounts:
        here = count_messages(self.client, self.name, self.url)
        dead = count_messages(self.client, self.name, self.dead_letters_url)
        return QueueCounts(*here, dead=sum(dead))

    def _check_group(self, is_given: bool) -> None:
        if is_fifo(self.url) != is_given:
            needed = "needs a group" if is_fifo(self.url) else "is not FIFO and takes no group"
            raise InvalidRequestError(f"queue {self.name!r} {needed}")

    def _check_deduplication(self, is_given: bool) -> None:
        if is_given and not is_fifo(self.url):
            raise InvalidRequestError(
                f"queue {self.name!r} is not FIFO and takes no deduplication id"
            )

    def _set_visibility(self, receipt: str, seconds: float) -> bool:
        """Returns False if the receipt does not hold its message any more."""
        try:
            with translate_errors(f"queue {self.name!r}"):
                self.client.change_message_visibility(
                    QueueUrl=self.url,
                    ReceiptHandle=receipt,
                    VisibilityTimeout=min(math.ceil(seconds), _VISIBILITY_SECONDS_MAX),
                )
        except Exception as error:
            if _is_stale_receipt(error):
                return False
            raise
        return True


def is_fifo(url: str) -> bool:
    """Returns whether the queue is FIFO; SQS requires this end of the names of FIFO queues."""
    return url.endswith(_FIFO)


def count_messages(client: "SQSClient", name: str, url: str) -> tuple[int, int, int]:
    """Returns about how many messages are visible, in flight and delayed."""
    names: Any = [
        f"ApproximateNumberOfMessages{ending}" for ending in ("", "NotVisible", "Delayed")
    ]
    with translate_errors(f"queue {name!r}"):
        response = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)
    visible, in_flight, delayed = (int(response["Attributes"].get(name, 0)) for name in names)
    return visible, in_flight, delayed


def _message(raw: "MessageTypeDef") -> Message:
    attributes = raw["Attributes"]
    return Message(
        message_id=raw["MessageId"],
        body=raw["Body"],
        receipt=raw["ReceiptHandle"],
        receives=int(attributes["ApproximateReceiveCount"]),
        sent_ms=int(attributes["SentTimestamp"]),
        group=attributes.get("MessageGroupId"),
        sender=attributes.get("SenderId", ""),
    )


def _is_stale_receipt(error: BaseException) -> bool:
    cause = error.__cause__
    return isinstance(cause, ClientError) and error_code(cause) in _STALE_RECEIPT


class SqsResultsQueue:
    """Implements `sleeper.jobs.queue.ResultsQueue`.

    The sender of a query names the queue, so a missing one is NotFoundError.
    """

    def __init__(self, client: "SQSClient", url: str) -> None:
        if is_fifo(url):
            raise InvalidRequestError(f"queue {url}: results cannot go to a FIFO queue")
        self._client = client
        self._url = url

    @cached_property
    def message_bytes_max(self) -> int:
        """See the port. The limit is an attribute of the queue."""
        with self._missing_as_not_found(), translate_errors(f"queue {self._url}"):
            response = self._client.get_queue_attributes(
                QueueUrl=self._url, AttributeNames=["MaximumMessageSize"]
            )
        return min(int(response["Attributes"]["MaximumMessageSize"]), MESSAGE_BYTES_MAX)

    def send_all(self, bodies: Sequence[str]) -> None:
        with self._missing_as_not_found():
            send_batches(self._client, self._url, self._url, [Outgoing(body) for body in bodies])

    @contextmanager
    def _missing_as_not_found(self) -> Iterator[None]:
        try:
            yield
        except MissingResourceError as error:
            raise NotFoundError(str(error)) from error
