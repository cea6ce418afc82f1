"""Messages sent to SQS ten at a time, those that failed again."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sleeper.aws.clients import partial_request_backoff
from sleeper.aws.errors import ThrottledError, translated
from sleeper.errors import InvalidRequestError
from sleeper.jobs.queue import MESSAGE_BYTES_MAX
from sleeper.retries import retry

_BATCH_MESSAGES = 10
# Smaller than what SQS takes in one request today, because other servers keep its old limit.
_BATCH_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send. On a FIFO queue it has a group and a deduplication id."""

    body: str
    group: str | None = None
    deduplication_id: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def members(self) -> dict[str, Any]:
        """What SQS is told of it."""
        told: dict[str, Any] = {"MessageBody": self.body}
        if self.group is not None:
            told["MessageGroupId"] = self.group
            told["MessageDeduplicationId"] = self.deduplication_id or uuid.uuid4().hex
        if self.attributes:
            told["MessageAttributes"] = self.attributes
        return told


def check_size(queue: str, body: str) -> int:
    """The body's bytes. InvalidRequestError if SQS would not take so many, or none."""
    size = len(body.encode())
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"queue {queue!r}: a message of {size:,} bytes is over the limit of "
            f"{MESSAGE_BYTES_MAX:,}"
        )
    if not size:
        raise InvalidRequestError(f"queue {queue!r}: a message cannot be empty")
    return size


def send_batches(client: Any, queue: str, url: str, messages: Iterable[Outgoing]) -> list[str]:
    """Sends all, and returns their ids in order. After an error some may have been sent."""
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


def _send_batch(client: Any, queue: str, url: str, batch: Sequence[Outgoing]) -> list[str]:
    # The members are made once: a second try repeats the deduplication ids.
    waiting = {str(i): {"Id": str(i), **m.members()} for i, m in enumerate(batch)}
    sent: dict[str, str] = {}

    def attempt() -> None:
        with translated(f"queue {queue!r}"):
            answer = client.send_message_batch(QueueUrl=url, Entries=list(waiting.values()))
        for done in answer.get("Successful", ()):
            sent[done["Id"]] = done["MessageId"]
            del waiting[done["Id"]]
        _raise_hopeless(queue, answer.get("Failed", ()))
        if waiting:
            raise ThrottledError(f"queue {queue!r}: {len(waiting)} messages were not sent")

    retry(attempt, on=ThrottledError, backoff=partial_request_backoff())
    return [sent[str(i)] for i in range(len(batch))]


def _raise_hopeless(queue: str, failed: Iterable[dict[str, Any]]) -> None:
    for each in failed:
        if each.get("SenderFault"):
            raise InvalidRequestError(
                f"queue {queue!r}: {each.get('Code')}: {each.get('Message', '')}"
            )
