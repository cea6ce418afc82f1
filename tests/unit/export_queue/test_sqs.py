"""Tests of the exporter to SQS: groups, partial failures, and the queues that it opens."""

from collections.abc import Iterator
from typing import Any

import pytest

from sleeper.aws import external_queue
from sleeper.aws.external_queue import SqsExternalQueue, open_external_queue
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.exporters import sqs
from sleeper.export_queue.exporters.sqs import SqsExporter
from sleeper.instance import Instance
from sleeper.jobs.queue import OutgoingMessage, QueueSettings
from sleeper.opening import create_instance, open_instance
from sleeper.retries import Backoff
from tests.contracts.sqs_queues import SqsServer, moto_server
from tests.export_batches import make_batch, make_queue

FIFO_URL = "https://sqs.eu-west-1.amazonaws.com/1/exports.fifo"


class FakeSqs:
    """Answers requests with the failures of the next attempts, by message."""

    def __init__(self, *failures: dict[str, bool]) -> None:
        self.failures = list(failures)
        self.requests: list[list[dict[str, Any]]] = []

    def send_message_batch(self, Entries: list[dict[str, Any]], **_: str) -> dict[str, Any]:
        self.requests.append(Entries)
        failing = self.failures.pop(0) if self.failures else {}
        failed = [
            {"Id": each["Id"], "SenderFault": failing[body], "Code": "Bad", "Message": body}
            for each in Entries
            if (body := each["MessageBody"]) in failing
        ]
        failed_ids = {each["Id"] for each in failed}
        done = [{"Id": each["Id"]} for each in Entries if each["Id"] not in failed_ids]
        return {"Successful": done, "Failed": failed}

    @property
    def bodies(self) -> list[list[str]]:
        return [[each["MessageBody"] for each in request] for request in self.requests]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_queue, "_BACKOFF", Backoff(retries=3))


def messages(*bodies: str) -> list[OutgoingMessage]:
    return [OutgoingMessage(body) for body in bodies]


def test_messages_that_failed_for_the_moment_are_sent_again() -> None:
    client: Any = FakeSqs({"b": False}, {"b": False})
    assert SqsExternalQueue(client, "q").send(messages("a", "b", "c")) == {}
    assert client.bodies == [["a", "b", "c"], ["b"], ["b"]]


def test_messages_that_the_queue_refuses_are_returned_with_the_reason() -> None:
    client: Any = FakeSqs({"b": True, "c": False})
    assert SqsExternalQueue(client, "q").send(messages("a", "b", "c")) == {1: "Bad: b"}
    assert client.bodies == [["a", "b", "c"], ["c"]]


def test_a_queue_that_keeps_failing_is_unavailable() -> None:
    client: Any = FakeSqs(*[{"b": False}] * 9)
    with pytest.raises(UnavailableError, match="queue q: 1 messages were not sent: Bad: b"):
        SqsExternalQueue(client, "q").send(messages("a", "b"))
    assert len(client.bodies) == 4


def test_requests_have_ten_messages_and_a_limited_size() -> None:
    client: Any = FakeSqs()
    large = "x" * 200_000
    SqsExternalQueue(client, "q").send(messages(*map(str, range(11)), large, large))
    assert [len(each) for each in client.bodies] == [10, 2, 1]


def test_a_message_above_the_limit_is_refused_and_not_sent() -> None:
    client: Any = FakeSqs()
    refused = SqsExternalQueue(client, "q").send(messages("a", "ä" * 524_289, "ä" * 524_288))
    assert refused == {1: "the message has 1,048,578 bytes (expected at most 1,048,576)"}
    assert [len(body) for request in client.bodies for body in request] == [1, 524_288]


def test_exports_of_a_key_are_in_one_group_and_in_different_requests() -> None:
    client: Any = FakeSqs()
    queue = make_queue(f"sqs:{FIFO_URL}")
    exports = [("a", {}, 1), ("a", {}, 2), ("b", {}, 2), ("b", {}, 3)]
    SqsExporter(SqsExternalQueue(client, FIFO_URL)).export(make_batch(queue, exports))

    groups = [[each["MessageGroupId"] for each in request] for request in client.requests]
    assert groups == [[groups[0][0]], [groups[0][0], groups[2][0]], [groups[2][0]]]
    assert groups[0] != groups[2]
    ids = {e["MessageDeduplicationId"] for request in client.requests for e in request}
    assert len(ids) == 4


def test_a_repeated_export_has_the_same_deduplication_id() -> None:
    client: Any = FakeSqs()
    queue = make_queue(f"sqs:{FIFO_URL}")
    exporter = SqsExporter(SqsExternalQueue(client, FIFO_URL))
    for _ in range(2):
        exporter.export(make_batch(queue, [("a", {"word": "x"}, 1)]))
    first, second = (request[0]["MessageDeduplicationId"] for request in client.requests)
    assert first == second


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SqsServer]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    external_queue._client.cache_clear()
    with moto_server() as opened:
        yield opened
    external_queue._client.cache_clear()


def test_a_local_instance_sends_to_a_queue_of_sqs_by_its_name(
    server: SqsServer, tmp_path: Any
) -> None:
    create_instance(tmp_path / "instance")
    instance = open_instance(tmp_path / "instance")
    url = server.make("exports", QueueSettings()).url
    queue = make_queue(f"sqs:{url.rpartition('/')[2]}")
    exporter = sqs.make(instance, queue)
    exporter.export(make_batch(queue, [("a", {}, 1)]))
    exporter.close()
    instance.close()
    assert len(server.bodies(url)) == 1


def test_the_region_is_that_of_the_url(server: SqsServer) -> None:
    other = open_external_queue("https://sqs.eu-west-1.amazonaws.com/1/exports.fifo")
    assert other.client.meta.region_name == "eu-west-1"
    assert other.is_fifo
    here = open_external_queue("http://localhost:4566/000000000000/exports")
    assert here.client.meta.region_name == "us-east-1"


def test_a_queue_that_does_not_exist_is_unavailable(server: SqsServer) -> None:
    with pytest.raises(UnavailableError, match="queue 'missing': "):
        open_external_queue("missing")


@pytest.mark.parametrize(
    ("target", "settings", "problem"),
    [
        ("a b", {}, "target 'a b' is invalid"),
        ("https://h/q", {}, "target 'https://h/q' is invalid"),
        ("https://me:pw@h/1/q", {}, "is invalid"),
        ("q.fifo.x", {}, "is invalid"),
        ("q", {"options": {"group": "key"}}, r"unknown option 'group' \(expected none\)"),
        ("q", {"password": "env:X"}, "a password is given"),
    ],
)
def test_settings_are_refused(
    instance: Instance, target: str, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        sqs.check(instance, make_queue(f"sqs:{target}", **settings))
