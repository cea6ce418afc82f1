"""Messages of SQS and the checks of what a client sends."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulation.services.requests import client_error

MESSAGE_BYTES_MAX = 1_048_576
_DELAY_SECONDS_MAX = 900
_VALID = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


def invalid(message: str, code: str = "InvalidParameterValue") -> Exception:
    """Returns the error of a request that SQS does not accept."""
    return client_error(code, message, "SQS")


@dataclass(slots=True)
class Message:
    """A message. It is visible from `visible_ms`; `receipt` is that of its last receive."""

    id: str
    body: str
    sent_ms: int
    visible_ms: int
    group: str | None = None
    deduplication_id: str | None = None
    sequence: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    receives: int = 0
    receipt: str | None = None
    received_ms: int = 0
    first_received_ms: int = 0
    source_arn: str | None = None

    def is_visible(self, now_ms: int) -> bool:
        """Returns whether it can be received."""
        return self.visible_ms <= now_ms

    def is_in_flight(self, now_ms: int) -> bool:
        """Returns whether it was received, or returned with a delay."""
        return self.receives > 0 and self.visible_ms > now_ms

    def describe(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the message as ReceiveMessage does."""
        described: dict[str, Any] = {
            "MessageId": self.id,
            "ReceiptHandle": self.receipt,
            "MD5OfBody": hashlib.md5(self.body.encode()).hexdigest(),
            "Body": self.body,
        }
        names = request.get("MessageSystemAttributeNames") or request.get("AttributeNames") or ()
        attributes = self._system_attributes()
        chosen = {n: v for n, v in attributes.items() if "All" in names or n in names}
        if chosen:
            described["Attributes"] = chosen
        if self.attributes and request.get("MessageAttributeNames"):
            described["MessageAttributes"] = dict(self.attributes)
        return described

    def _system_attributes(self) -> dict[str, str]:
        values = {
            "SenderId": "SIMULATED",
            "SentTimestamp": str(self.sent_ms),
            "ApproximateReceiveCount": str(self.receives),
            "ApproximateFirstReceiveTimestamp": str(self.first_received_ms),
            "MessageGroupId": self.group,
            "MessageDeduplicationId": self.deduplication_id,
            "SequenceNumber": self.sequence,
            "DeadLetterQueueSourceArn": self.source_arn,
        }
        return {name: value for name, value in values.items() if value is not None}


def check_message(members: Mapping[str, Any], is_fifo: bool) -> None:
    """Raises an error if a message cannot be sent to a queue of this kind."""
    body = members["MessageBody"]
    if not body:
        raise invalid("The request must contain the parameter MessageBody.", "MissingParameter")
    if message_bytes(members) > MESSAGE_BYTES_MAX:
        raise invalid(
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{MESSAGE_BYTES_MAX} bytes."
        )
    if not _VALID.fullmatch(body):
        raise invalid(
            "Invalid characters found. Valid unicode characters are …", "InvalidMessageContents"
        )
    delay = members.get("DelaySeconds")
    if delay is not None and (is_fifo or not 0 <= delay <= _DELAY_SECONDS_MAX):
        raise invalid(f"Value {delay} for parameter DelaySeconds is invalid.")
    if not is_fifo:
        if "MessageDeduplicationId" in members:
            raise invalid("The request includes a parameter that is not valid for this queue type")
        return
    if "MessageGroupId" not in members:
        raise invalid("The request must contain the parameter MessageGroupId.", "MissingParameter")
    if "MessageDeduplicationId" not in members:
        raise invalid(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )


def message_bytes(members: Mapping[str, Any]) -> int:
    """Returns the size of a message with its attributes."""
    attributes = members.get("MessageAttributes", {})
    return len(members["MessageBody"].encode()) + sum(
        len(name) + sum(len(str(part)) for part in value.values())
        for name, value in attributes.items()
    )
