"""Message queues in SQS, standard and FIFO.

Differs from a local queue where SQS does: only FIFO queues keep order, ten messages at most
are received at once, a delay is at most 15 minutes and is not for single messages of a FIFO
queue, and a message given back with a delay counts as in flight. Counts are approximate.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from sleeper.aws.errors import MissingResourceError, code_of, translated
from sleeper.aws.message_batch import Outgoing, check_size, send_batches
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.jobs.queue import MESSAGE_BYTES_MAX, Message, QueueCounts

RECEIVE_MAX = 10
_WAIT_SECONDS_MAX = 20
_DELAY_SECONDS_MAX = 900
_VISIBILITY_SECONDS_MAX = 43_200
_FIFO = ".fifo"
# What SQS answers of a receipt whose message is deleted, or in flight elsewhere.
_TOO_OLD = {"MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue"}


class SqsQueue:
    """Implements `sleeper.jobs.queue.MessageQueue`.

    `name` is what errors call it. Visibility timeout and number of receives are the
    queue's own, as deployed. Safe for threads.
    """

    def __init__(self, client: Any, name: str, url: str, dead_letters_url: str) -> None:
        self._client = client
        self._name = name
        self._url = url
        self._dead_letters_url = dead_letters_url
        self._fifo = is_fifo(url)

    def send(
        self,
        body: str,
        delay_seconds: float = 0,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        """See the port."""
        self._check_group(group is not None)
        if deduplication_id is not None and not self._fifo:
            raise InvalidRequestError(
                f"queue {self._name!r} is not FIFO and takes no deduplication id"
            )
        if delay_seconds and (self._fifo or delay_seconds > _DELAY_SECONDS_MAX):
            most = 0 if self._fifo else _DELAY_SECONDS_MAX
            raise InvalidRequestError(
                f"queue {self._name!r} delays a message by at most {most} s, not {delay_seconds}"
            )
        check_size(self._name, body)
        told = Outgoing(body, group, deduplication_id).members()
        if delay_seconds:
            told["DelaySeconds"] = math.ceil(delay_seconds)
        with translated(f"queue {self._name!r}"):
            return str(self._client.send_message(QueueUrl=self._url, **told)["MessageId"])

    def send_all(self, bodies: Sequence[str], groups: Sequence[str] | None = None) -> None:
        """See the port. Ten at a time."""
        self._check_group(groups is not None)
        if groups is None:
            messages = [Outgoing(body) for body in bodies]
        else:
            messages = [Outgoing(b, g) for b, g in zip(bodies, groups, strict=True)]
        send_batches(self._client, self._name, self._url, messages)

    def receive(self, messages_max: int = 1, wait_seconds: float = 0) -> tuple[Message, ...]:
        """See the port. At most ten."""
        deadline = time.monotonic() + wait_seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            with translated(f"queue {self._name!r}"):
                answer = self._client.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=min(messages_max, RECEIVE_MAX),
                    WaitTimeSeconds=min(math.ceil(left), _WAIT_SECONDS_MAX),
                    MessageSystemAttributeNames=["All"],
                )
            received = tuple(_message(raw) for raw in answer.get("Messages", ()))
            if received or time.monotonic() >= deadline:
                return received

    def extend(self, receipt: str, seconds: float) -> None:
        """See the port. SQS keeps a message in flight for 12 hours in all."""
        if not self._set_visibility(receipt, seconds):
            raise StateMovedOnError(
                f"queue {self._name!r}: the message of receipt {receipt[:20]} is not held any more"
            )

    def delete(self, receipt: str) -> None:
        """See the port."""
        try:
            with translated(f"queue {self._name!r}"):
                self._client.delete_message(QueueUrl=self._url, ReceiptHandle=receipt)
        except Exception as error:
            if not _is_too_old(error):
                raise

    def give_back(self, receipt: str, delay_seconds: float = 0) -> None:
        """See the port."""
        self._set_visibility(receipt, delay_seconds)

    def counts(self) -> QueueCounts:
        """See the port."""
        here = queue_numbers(self._client, self._name, self._url)
        dead = queue_numbers(self._client, self._name, self._dead_letters_url)
        return QueueCounts(*here, dead=sum(dead))

    def _check_group(self, is_given: bool) -> None:
        if self._fifo != is_given:
            needed = "needs a group" if self._fifo else "is not FIFO and takes no group"
            raise InvalidRequestError(f"queue {self._name!r} {needed}")

    def _set_visibility(self, receipt: str, seconds: float) -> bool:
        """False if the receipt does not hold its message any more."""
        try:
            with translated(f"queue {self._name!r}"):
                self._client.change_message_visibility(
                    QueueUrl=self._url,
                    ReceiptHandle=receipt,
                    VisibilityTimeout=min(math.ceil(seconds), _VISIBILITY_SECONDS_MAX),
                )
        except Exception as error:
            if _is_too_old(error):
                return False
            raise
        return True


def is_fifo(url: str) -> bool:
    """Whether the queue of that URL is FIFO. SQS has names of FIFO queues end like this."""
    return url.endswith(_FIFO)


def queue_numbers(client: Any, name: str, url: str) -> tuple[int, int, int]:
    """About how many messages can be received, are in flight, and are delayed."""
    names = [f"ApproximateNumberOfMessages{ending}" for ending in ("", "NotVisible", "Delayed")]
    with translated(f"queue {name!r}"):
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    visible, in_flight, delayed = (int(found.get(name, 0)) for name in names)
    return visible, in_flight, delayed


def _message(raw: dict[str, Any]) -> Message:
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


def _is_too_old(error: BaseException) -> bool:
    cause = error.__cause__
    return isinstance(cause, ClientError) and code_of(cause) in _TOO_OLD


class SqsResultsQueue:
    """Implements `sleeper.jobs.queue.ResultsQueue`.

    The sender of a query names the queue, so a missing one is NotFoundError.
    """

    def __init__(self, client: Any, url: str) -> None:
        if is_fifo(url):
            raise InvalidRequestError(f"queue {url}: results cannot go to a FIFO queue")
        self._client = client
        self._url = url

    @cached_property
    def message_bytes_max(self) -> int:
        """See the port. What the queue itself says."""
        with self._named_by_sender(), translated(f"queue {self._url}"):
            found = self._client.get_queue_attributes(
                QueueUrl=self._url, AttributeNames=["MaximumMessageSize"]
            )
        return min(int(found["Attributes"]["MaximumMessageSize"]), MESSAGE_BYTES_MAX)

    def send_all(self, bodies: Sequence[str]) -> None:
        """See the port."""
        with self._named_by_sender():
            send_batches(self._client, self._url, self._url, [Outgoing(body) for body in bodies])

    @contextmanager
    def _named_by_sender(self) -> Iterator[None]:
        try:
            yield
        except MissingResourceError as error:
            raise NotFoundError(str(error)) from error
