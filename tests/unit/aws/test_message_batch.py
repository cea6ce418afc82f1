"""Tests of batches to a queue that accepts only some of the messages."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from sleeper.aws.queue import Outgoing, send_batches
from sleeper.errors import InvalidRequestError, UnavailableError

MAX = 262_144


@dataclass
class FakeSqs:
    """A queue that refuses a number of messages of each request."""

    failures: list[int] = field(default_factory=list)
    sender_fault: bool = False
    requests: list[list[dict[str, Any]]] = field(default_factory=list)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        assert request.keys() == {"QueueUrl", "Entries"}
        entries = request["Entries"]
        self.requests.append(entries)
        failing = self.failures.pop(0) if self.failures else 0
        failure = {"Code": "InternalError", "SenderFault": self.sender_fault, "Message": "why"}
        return {
            "Failed": [{"Id": e["Id"], **failure} for e in entries[:failing]],
            "Successful": [
                {"Id": e["Id"], "MessageId": f"m-{e['MessageBody'][:5]}"} for e in entries[failing:]
            ],
        }


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sleeper.retries.sleep", lambda _: None)


def send(sqs: FakeSqs, messages: list[Outgoing]) -> list[str]:
    return send_batches(sqs, "q", "url", messages)


def test_failed_messages_are_sent_again_and_ids_keep_the_order() -> None:
    sqs = FakeSqs(failures=[3, 1])
    assert send(sqs, [Outgoing(f"{i}") for i in range(10)]) == [f"m-{i}" for i in range(10)]
    assert [len(entries) for entries in sqs.requests] == [10, 3, 1]


def test_a_retry_repeats_the_deduplication_ids() -> None:
    sqs = FakeSqs(failures=[2])
    send(sqs, [Outgoing("a", "g"), Outgoing("b", "g"), Outgoing("c", "g", "own")])
    first, again = sqs.requests
    assert again == first[:2]
    assert len({entry["MessageDeduplicationId"] for entry in first}) == 3
    assert first[2]["MessageDeduplicationId"] == "own"


def test_a_batch_is_limited_by_messages_and_bytes() -> None:
    sqs = FakeSqs()
    bodies = ["x" * size for size in (MAX - 1, 1, 1, MAX, MAX + 1, 5, *[1] * 12)]
    send(sqs, [Outgoing(body) for body in bodies])
    sizes = [[len(entry["MessageBody"]) for entry in entries] for entries in sqs.requests]
    assert sizes == [[MAX - 1, 1], [1], [MAX], [MAX + 1], [5, *[1] * 9], [1] * 3]


def test_a_sender_fault_is_not_retried() -> None:
    sqs = FakeSqs(failures=[1], sender_fault=True)
    with pytest.raises(InvalidRequestError, match="queue 'q': InternalError: why"):
        send(sqs, [Outgoing("a")])
    assert len(sqs.requests) == 1


def test_a_queue_that_keeps_failing_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="queue 'q': 2 messages were not sent"):
        send(FakeSqs(failures=[2] * 100), [Outgoing("a"), Outgoing("b")])
