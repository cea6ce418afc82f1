"""Queues of SQS.

A standard queue may deliver a message twice, late or out of order, and may answer a short poll with
nothing; `choose` decides. A FIFO queue delivers messages of a *group* in order, and none of a group
while one of them is in flight.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from simulation.services.requests import client_error
from simulation.services.sqs.messages import Message, invalid

URL_PREFIX = "https://sqs.eu-west-2.amazonaws.com/000000000000/"
_ARN_PREFIX = "arn:aws:sqs:eu-west-2:000000000000:"
_DEDUPLICATION_MS = 300_000
_IN_FLIGHT_MS_MAX = 12 * 3_600_000
_EXPIRY_CHECK_MS = 60_000
_FIFO_REQUESTS_PER_SECOND = 300
_DEFAULTS = {
    "VisibilityTimeout": "30",
    "DelaySeconds": "0",
    "MessageRetentionPeriod": str(4 * 86_400),
    "MaximumMessageSize": "1048576",
    "ReceiveMessageWaitTimeSeconds": "0",
}
# The parts of messages that a standard queue delivers again at once, after others, or after their
# deletion, and of short polls that it answers with nothing.
_TWICE, _LATER, _AFTER_DELETION, _NOTHING = 0.01, 0.1, 0.005, 0.03

Choose = Callable[[float], bool]


@dataclass(slots=True)
class Queue:
    """A queue. `find` returns another queue by its ARN, `number` numbers what is made."""

    name: str
    attributes: dict[str, str]
    find: Callable[[str], "Queue"]
    number: Callable[[], int]
    messages: dict[str, Message] = field(default_factory=dict)
    _groups: dict[str, dict[str, Message]] = field(default_factory=dict)
    _sent: dict[str, tuple[int, Message]] = field(default_factory=dict)
    _receipts: dict[str, str] = field(default_factory=dict)
    _expiry_checked_ms: int = 0

    @property
    def url(self) -> str:
        """The queue's URL."""
        return URL_PREFIX + self.name

    @property
    def arn(self) -> str:
        """The queue's ARN."""
        return _ARN_PREFIX + self.name

    @property
    def is_fifo(self) -> bool:
        """Whether it is a FIFO queue."""
        return self.name.endswith(".fifo")

    @property
    def wait_seconds(self) -> int:
        """How long a receive waits that does not say."""
        return self._seconds("ReceiveMessageWaitTimeSeconds")

    def describe(self, now_ms: int) -> dict[str, str]:
        """Returns the attributes, with the numbers of messages."""
        self.expire(now_ms)
        counts = {"": 0, "NotVisible": 0, "Delayed": 0}
        for message in self.messages.values():
            kind = "Delayed" if not message.receives else "NotVisible"
            counts["" if message.is_visible(now_ms) else kind] += 1
        numbers = {f"ApproximateNumberOfMessages{k}": str(count) for k, count in counts.items()}
        return {**_DEFAULTS, **self.attributes, **numbers, "QueueArn": self.arn}

    def send(self, members: Mapping[str, Any], now_ms: int) -> Message:
        """Adds a message. Returns the one with the same deduplication id of five minutes."""
        deduplication_id = members.get("MessageDeduplicationId")
        if deduplication_id is not None and (sent := self._find_sent(deduplication_id, now_ms)):
            return sent
        delay = members.get("DelaySeconds", self._seconds("DelaySeconds"))
        number = self.number()
        message = Message(
            f"00000000-0000-4000-8000-{number:012d}",
            members["MessageBody"],
            now_ms,
            now_ms + delay * 1000,
            members.get("MessageGroupId"),
            deduplication_id,
            f"{number:020d}" if self.is_fifo else None,
            members.get("MessageAttributes", {}),
        )
        self._add(message)
        if deduplication_id is not None:
            self._sent[deduplication_id] = (now_ms, message)
        return message

    def has_visible(self, now_ms: int) -> bool:
        """Returns whether a receive would return or move a message."""
        self.expire(now_ms)
        return next(self._receivable(now_ms), None) is not None

    def receive(
        self, most: int, timeout_seconds: int | None, is_short: bool, now_ms: int, choose: Choose
    ) -> list[Message]:
        """Returns messages and hides them. Those over their receives become dead letters."""
        self.expire(now_ms)
        if timeout_seconds is None:
            timeout_seconds = self._seconds("VisibilityTimeout")
        if is_short and not self.is_fifo and choose(_NOTHING):
            return []
        received: list[Message] = []
        dead: list[Message] = []
        # Changes come after the search, which reads no more of the queue than it needs.
        for message in self._receivable(now_ms):
            if self._is_over(message):
                dead.append(message)
            elif self.is_fifo or not choose(_LATER):
                received.append(message)
                if len(received) == most:
                    break
        for message in dead:
            self._bury(message, now_ms)
        for message in received:
            self._deliver(message, timeout_seconds, now_ms, choose)
        return received

    def delete(self, receipt: str, now_ms: int, choose: Choose) -> None:
        """Deletes the message of a receipt. A FIFO queue refuses one whose timeout has passed."""
        message = self._find_received(receipt)
        if message is None or message.receipt != receipt:
            return
        if self.is_fifo and not message.is_in_flight(now_ms):
            raise invalid(
                f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: The receipt "
                "handle has expired."
            )
        if self.is_fifo or not choose(_AFTER_DELETION):
            self.remove(message)

    def set_visibility(self, receipt: str, seconds: int, now_ms: int) -> None:
        """Hides the message of a receipt for this time from now."""
        message = self._find_received(receipt)
        if message is None or message.receipt != receipt or not message.is_in_flight(now_ms):
            raise invalid(
                f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: Message does not "
                "exist or is not available for visibility timeout change."
            )
        if now_ms + seconds * 1000 > message.received_ms + _IN_FLIGHT_MS_MAX:
            raise invalid(
                f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total "
                "VisibilityTimeout for the message is beyond the limit [43200 seconds]."
            )
        message.visible_ms = now_ms + seconds * 1000

    def remove(self, message: Message) -> None:
        """Removes a message."""
        del self.messages[message.id]
        if message.group is not None:
            group = self._groups[message.group]
            del group[message.id]
            if not group:
                del self._groups[message.group]

    def expire(self, now_ms: int) -> None:
        """Removes messages that are older than the retention period."""
        if now_ms - self._expiry_checked_ms < _EXPIRY_CHECK_MS:
            return
        self._expiry_checked_ms = now_ms
        before_ms = now_ms - self._seconds("MessageRetentionPeriod") * 1000
        for message in [m for m in self.messages.values() if m.sent_ms <= before_ms]:
            self.remove(message)
        self._receipts = {r: i for r, i in self._receipts.items() if i in self.messages}

    def _receivable(self, now_ms: int) -> Iterator[Message]:
        if not self.is_fifo:
            yield from (m for m in self.messages.values() if m.is_visible(now_ms))
            return
        for group in self._groups.values():
            received = takewhile(lambda m: m.receives > 0, group.values())
            if not any(message.is_in_flight(now_ms) for message in received):
                yield from takewhile(lambda m: m.is_visible(now_ms), group.values())

    def _deliver(self, message: Message, timeout_seconds: int, now_ms: int, choose: Choose) -> None:
        message.receives += 1
        message.receipt = f"receipt-{self.number():012d}"
        message.received_ms = now_ms
        message.first_received_ms = message.first_received_ms or now_ms
        self._receipts[message.receipt] = message.id
        if self.is_fifo or not choose(_TWICE):
            message.visible_ms = now_ms + timeout_seconds * 1000

    def _is_over(self, message: Message) -> bool:
        policy = self.attributes.get("RedrivePolicy")
        return policy is not None and message.receives >= int(json.loads(policy)["maxReceiveCount"])

    def _bury(self, message: Message, now_ms: int) -> None:
        """Moves a message to the dead-letter queue. Only a FIFO queue starts its time anew."""
        policy = json.loads(self.attributes["RedrivePolicy"])
        self.remove(message)
        message.source_arn = self.arn
        message.visible_ms = now_ms
        message.receipt = None
        if self.is_fifo:
            message.sent_ms = now_ms
        self.find(policy["deadLetterTargetArn"])._add(message)

    def _add(self, message: Message) -> None:
        self.messages[message.id] = message
        if message.group is not None:
            self._groups.setdefault(message.group, {})[message.id] = message

    def _find_sent(self, deduplication_id: str, now_ms: int) -> Message | None:
        before_ms = now_ms - _DEDUPLICATION_MS
        for old in list(takewhile(lambda each: each[1][0] <= before_ms, self._sent.items())):
            del self._sent[old[0]]
        sent = self._sent.get(deduplication_id)
        return None if sent is None else sent[1]

    def _find_received(self, receipt: str) -> Message | None:
        if not receipt.startswith("receipt-"):
            raise invalid(
                f'The input receipt handle "{receipt}" is not a valid receipt handle.',
                "ReceiptHandleIsInvalid",
            )
        return self.messages.get(self._receipts.get(receipt, ""))

    def _seconds(self, name: str) -> int:
        return int(self.attributes.get(name, _DEFAULTS[name]))


class QueueService:
    """The queues of an account. With `is_limited`, FIFO queues take 300 requests a second."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.is_limited = False
        self._number = 0
        self._second = 0
        self._requests: dict[tuple[str, str, str], int] = {}

    def create(self, name: str, attributes: Mapping[str, str]) -> Queue:
        """Creates a queue, or returns the one of that name."""
        if (attributes.get("FifoQueue") == "true") != name.endswith(".fifo"):
            raise invalid("The name of a FIFO queue, and of no other, ends with .fifo")
        if name not in self.queues:
            self.queues[name] = Queue(name, dict(attributes), self._find_arn, self._next_number)
        return self.queues[name]

    def find(self, url: str, operation: str) -> Queue:
        """Returns a queue by its URL or name."""
        name = url.rpartition("/")[2]
        if name not in self.queues:
            raise client_error(
                "AWS.SimpleQueueService.NonExistentQueue",
                "The specified queue does not exist.",
                operation,
            )
        return self.queues[name]

    def count_request(self, queue: Queue, operation: str, group: str, now_ms: int) -> None:
        """Raises an error if a FIFO queue has no capacity for another request in this second.

        A queue of high throughput counts those of each group.
        """
        has_groups = queue.attributes.get("FifoThroughputLimit") == "perMessageGroupId"
        if not (self.is_limited and queue.is_fifo) or (has_groups and not group):
            return
        if now_ms // 1000 != self._second:
            self._second, self._requests = now_ms // 1000, {}
        key = (queue.name, operation.removesuffix("_batch"), group if has_groups else "")
        self._requests[key] = self._requests.get(key, 0) + 1
        if self._requests[key] > _FIFO_REQUESTS_PER_SECOND:
            raise client_error("RequestThrottled", "Rate exceeded", operation)

    def _find_arn(self, arn: str) -> Queue:
        return self.find(arn.rpartition(":")[2], "ReceiveMessage")

    def _next_number(self) -> int:
        self._number += 1
        return self._number
