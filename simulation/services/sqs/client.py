"""The client of a simulated SQS, with the methods of boto3's that Sleeper uses.

A long poll waits in steps of virtual time until a message can be received; it is one call.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from simulation.services.requests import Exceptions, Requests
from simulation.services.sqs.messages import (
    MESSAGE_BYTES_MAX,
    Message,
    check_message,
    invalid,
    message_bytes,
)
from simulation.services.sqs.queues import Queue, QueueService

T = TypeVar("T")

_POLL_SECONDS = 1.0
_RECEIVED_MAX = 10
_WAIT_SECONDS_MAX = 20
_VISIBILITY_SECONDS_MAX = 43_200
_ENTRIES_MAX = 10
# The part of the entries of a batch that the service fails to carry out.
_PARTIAL = 0.02


class SqsClient:
    """A client. The clients of one service share its queues."""

    def __init__(self, service: QueueService, requests: Requests) -> None:
        self.exceptions = Exceptions()
        self._service = service
        self._requests = requests

    # Queues

    def create_queue(self, **request: Any) -> dict[str, Any]:
        """Creates a queue."""
        name, attributes = request["QueueName"], request.get("Attributes", {})
        return self._requests.send(
            "create_queue", name, lambda: {"QueueUrl": self._service.create(name, attributes).url}
        )

    def get_queue_url(self, **request: Any) -> dict[str, Any]:
        """Returns the URL of a queue by its name."""
        return self._send(
            "get_queue_url", request["QueueName"], lambda queue: {"QueueUrl": queue.url}
        )

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        """Returns attributes of a queue."""

        def effect(queue: Queue) -> dict[str, Any]:
            described, names = queue.describe(self._now_ms()), request["AttributeNames"]
            chosen = {n: v for n, v in described.items() if "All" in names or n in names}
            return {"Attributes": chosen}

        return self._send("get_queue_attributes", request["QueueUrl"], effect)

    def delete_queue(self, **request: Any) -> dict[str, Any]:
        """Deletes a queue with its messages."""

        def effect(queue: Queue) -> dict[str, Any]:
            del self._service.queues[queue.name]
            return {}

        return self._send("delete_queue", request["QueueUrl"], effect)

    # Messages

    def send_message(self, **request: Any) -> dict[str, Any]:
        """Sends a message."""

        def effect(queue: Queue) -> dict[str, Any]:
            check_message(request, queue.is_fifo)
            return _sent(queue.send(request, self._now_ms()))

        group = request.get("MessageGroupId", "")
        return self._send("send_message", request["QueueUrl"], effect, group)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        """Sends up to ten messages, each of which may fail."""
        entries = request["Entries"]
        _check_entries(entries)
        if sum(map(message_bytes, entries)) > MESSAGE_BYTES_MAX:
            raise invalid(
                f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes.",
                "BatchRequestTooLong",
            )

        def carry_out(queue: Queue, entry: dict[str, Any]) -> dict[str, Any]:
            check_message(entry, queue.is_fifo)
            return _sent(queue.send(entry, self._now_ms()))

        return self._send_batch("send_message_batch", request["QueueUrl"], entries, carry_out)

    def receive_message(self, **request: Any) -> dict[str, Any]:
        """Receives up to ten messages; a long poll waits for one."""
        most = request.get("MaxNumberOfMessages", 1)
        timeout = request.get("VisibilityTimeout")
        if not 1 <= most <= _RECEIVED_MAX:
            raise invalid(f"Value {most} for parameter MaxNumberOfMessages is invalid.")
        _check_visibility(timeout)
        wait_seconds = self._wait(request)

        def effect(queue: Queue) -> dict[str, Any]:
            received = queue.receive(
                most, timeout, not wait_seconds, self._now_ms(), self._requests.calls.choose
            )
            if not received:
                return {}
            return {"Messages": [message.describe(request) for message in received]}

        return self._send("receive_message", request["QueueUrl"], effect)

    def delete_message(self, **request: Any) -> dict[str, Any]:
        """Deletes a received message."""

        def effect(queue: Queue) -> dict[str, Any]:
            self._delete(queue, request)
            return {}

        return self._send("delete_message", request["QueueUrl"], effect)

    def delete_message_batch(self, **request: Any) -> dict[str, Any]:
        """Deletes up to ten received messages, each of which may fail."""
        entries = request["Entries"]
        _check_entries(entries)
        return self._send_batch("delete_message_batch", request["QueueUrl"], entries, self._delete)

    def change_message_visibility(self, **request: Any) -> dict[str, Any]:
        """Hides a received message for another time from now."""
        _check_visibility(request["VisibilityTimeout"])

        def effect(queue: Queue) -> dict[str, Any]:
            self._set_visibility(queue, request)
            return {}

        return self._send("change_message_visibility", request["QueueUrl"], effect)

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        """Hides up to ten received messages for another time, each of which may fail."""
        entries = request["Entries"]
        _check_entries(entries)
        operation = "change_message_visibility_batch"
        return self._send_batch(operation, request["QueueUrl"], entries, self._set_visibility)

    # What the methods share

    def _delete(self, queue: Queue, members: dict[str, Any]) -> dict[str, Any]:
        queue.delete(members["ReceiptHandle"], self._now_ms(), self._requests.calls.choose)
        return {}

    def _set_visibility(self, queue: Queue, members: dict[str, Any]) -> dict[str, Any]:
        seconds = members["VisibilityTimeout"]
        queue.set_visibility(members["ReceiptHandle"], seconds, self._now_ms())
        return {}

    def _wait(self, request: dict[str, Any]) -> int:
        """Waits for a message as long as the request says, and returns that time."""
        queue = self._service.queues.get(request["QueueUrl"].rpartition("/")[2])
        default = queue.wait_seconds if queue is not None else 0
        seconds = int(request.get("WaitTimeSeconds", default))
        if not 0 <= seconds <= _WAIT_SECONDS_MAX:
            raise invalid(f"Value {seconds} for parameter WaitTimeSeconds is invalid.")
        end_ms = self._now_ms() + seconds * 1000
        while queue is not None and not queue.has_visible(now_ms := self._now_ms()):
            if now_ms >= end_ms:
                break
            self._requests.wait(min(_POLL_SECONDS, (end_ms - now_ms) / 1000))
        return seconds

    def _send(self, operation: str, url: str, effect: Callable[[Queue], T], group: str = "") -> T:
        def find_and_do() -> T:
            queue = self._service.find(url, operation)
            self._service.count_request(queue, operation, group, self._now_ms())
            return effect(queue)

        return self._requests.send(operation, url.rpartition("/")[2], find_and_do)

    def _send_batch(
        self,
        operation: str,
        url: str,
        entries: Sequence[dict[str, Any]],
        carry_out: Callable[[Queue, dict[str, Any]], dict[str, Any]],
    ) -> dict[str, Any]:
        def effect(queue: Queue) -> dict[str, Any]:
            successful: list[dict[str, Any]] = []
            failed: list[dict[str, Any]] = []
            for position, entry in enumerate(entries):
                if position and self._requests.calls.choose(_PARTIAL):
                    failed.append(_failure(entry, False, "InternalError", "Internal error"))
                    continue
                try:
                    successful.append({"Id": entry["Id"], **carry_out(queue, entry)})
                except ClientError as error:
                    reason = error.response["Error"]
                    failed.append(_failure(entry, True, reason["Code"], reason["Message"]))
            return {"Successful": successful, **({"Failed": failed} if failed else {})}

        return self._send(operation, url, effect, entries[0].get("MessageGroupId", ""))

    def _now_ms(self) -> int:
        return self._requests.calls.now_ms()


def _sent(message: Message) -> dict[str, Any]:
    sequence = {} if message.sequence is None else {"SequenceNumber": message.sequence}
    return {"MessageId": message.id, **sequence}


def _failure(entry: dict[str, Any], is_sender: bool, code: str, message: str) -> dict[str, Any]:
    return {"Id": entry["Id"], "SenderFault": is_sender, "Code": code, "Message": message}


def _check_entries(entries: Sequence[dict[str, Any]]) -> None:
    if not entries:
        raise invalid("There should be at least one entry in the request.", "EmptyBatchRequest")
    if len(entries) > _ENTRIES_MAX:
        raise invalid(
            f"Maximum number of entries per request are {_ENTRIES_MAX}.",
            "TooManyEntriesInBatchRequest",
        )
    if len({entry["Id"] for entry in entries}) < len(entries):
        raise invalid("Two or more batch entries have the same Id.", "BatchEntryIdsNotDistinct")


def _check_visibility(seconds: int | None) -> None:
    if seconds is not None and not 0 <= seconds <= _VISIBILITY_SECONDS_MAX:
        raise invalid(f"Value {seconds} for parameter VisibilityTimeout is invalid.")
