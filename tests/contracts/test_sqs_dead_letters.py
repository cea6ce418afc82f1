"""Tests of listings and redrives of dead letters in SQS, and of their failures."""

from typing import Any
from unittest.mock import patch

import pytest

from sleeper.aws.dead_letters import SqsDeadLetters
from sleeper.errors import NotFoundError, UnavailableError
from sleeper.jobs.ingest_job import add_id
from sleeper.jobs.queue import QueueSettings
from tests.contracts.simulated_services import simulated_queues
from tests.contracts.sqs_queues import SqsServer, ministack_queues, sqs_queue
from tests.servers.ministack import Ministack
from tests.servers.sqs import QueuePair


def redriven(body: str, message_id: str, sender: str) -> str:
    assert sender, "the queue says who has sent the message"
    return add_id(body, "id", message_id)


class Letters:
    """A queue with dead letters, by their bodies."""

    def __init__(self, server: SqsServer, fifo: bool) -> None:
        self.server = server
        self.fifo = fifo
        self.pair: QueuePair = server.make("q", QueueSettings(30, 1, fifo))
        self.queue = sqs_queue(server.client, "q", self.pair)
        self.port = self.open(server.client)

    def open(self, client: Any) -> SqsDeadLetters:
        pair = self.pair
        return SqsDeadLetters(
            client, "q", pair.url, pair.dead_letters_url, redriven, wait_seconds=0
        )

    def die(self, *bodies: str, attributes: dict[str, Any] | None = None) -> None:
        """Makes dead letters of messages by one receive over their limit."""
        for body in bodies:
            group = {"MessageGroupId": "g", "MessageDeduplicationId": body} if self.fifo else {}
            self.server.client.send_message(
                QueueUrl=self.pair.url,
                MessageBody=body,
                MessageAttributes=attributes or {},
                **group,
            )
        while self.waiting():
            while self.queue.receive(10):
                pass
            self.server.clock.pass_seconds(31)

    def waiting(self) -> list[str]:
        return self.server.bodies(self.pair.url)

    def dead(self) -> list[str]:
        return self.server.bodies(self.pair.dead_letters_url)


@pytest.fixture(params=["standard", "fifo", "standard simulated", "fifo simulated"])
def letters(request: pytest.FixtureRequest) -> Letters:
    if "simulated" in request.param:
        return Letters(simulated_queues(), "fifo" in request.param)
    server: Ministack = request.getfixturevalue("ministack_server")
    return Letters(ministack_queues(server), request.param == "fifo")


def test_a_listing_keeps_messages_visible(letters: Letters) -> None:
    bodies = [f"{i}" for i in range(25)]
    letters.die(*bodies)
    seen = [letter.body for letter in letters.port.list()]
    # A listing has the first messages of a FIFO group.
    assert seen == (bodies[:10] if letters.fifo else bodies)
    assert [letter.body for letter in letters.port.list(3)] == bodies[:3]
    assert letters.dead() == bodies
    assert letters.port.redrive() == 25
    assert letters.waiting() == bodies
    assert letters.dead() == []


def test_a_failed_listing_only_delays_messages(letters: Letters) -> None:
    letters.die("a", "b")
    client = letters.server.client
    with (
        patch.object(client, "change_message_visibility_batch", side_effect=OSError("cut off")),
        pytest.raises(OSError, match="cut off"),
    ):
        letters.port.list()
    letters.server.clock.pass_seconds(31)
    assert [letter.body for letter in letters.port.list()] == ["a", "b"]


def test_a_redrive_that_dies_before_its_delete_loses_nothing(letters: Letters) -> None:
    letters.die("a", "b", "c")
    client = letters.server.client
    with (
        patch.object(client, "delete_message_batch", side_effect=OSError("cut off")),
        pytest.raises(OSError, match="cut off"),
    ):
        letters.port.redrive()
    assert letters.dead() == ["a", "b", "c"]
    letters.server.clock.pass_seconds(121)
    assert letters.port.redrive() == 3
    assert letters.dead() == []
    # A FIFO queue removes the duplicates; a standard queue has them twice.
    assert sorted(letters.waiting()) == sorted("abc" if letters.fifo else "aabbcc")


def test_a_redrive_keeps_group_attributes_and_order(letters: Letters) -> None:
    text = {"why": {"DataType": "String", "StringValue": "because"}}
    letters.die("a", "b", attributes=text)
    letters.port.redrive()
    messages = letters.server.client.receive_message(
        QueueUrl=letters.pair.url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
    )["Messages"]
    assert [m["Body"] for m in messages] == ["a", "b"]
    assert [m["MessageAttributes"] for m in messages] == [text, text]
    groups = {m["Attributes"].get("MessageGroupId") for m in messages}
    assert groups == ({"g"} if letters.fifo else {None})


def test_a_job_without_an_id_gets_that_of_its_first_message(letters: Letters) -> None:
    first = '{"files":["b/k"]}'
    letters.die(first, '{"id":"own"}', "no JSON", "[]")
    ids = {letter.body: letter.message_id for letter in letters.port.list()}
    letters.port.redrive()
    with_id = f'{{"files":["b/k"],"id":"{ids[first]}"}}'
    assert letters.waiting() == [with_id, '{"id":"own"}', "no JSON", "[]"]


def test_deleting_a_dead_letter_keeps_the_others(letters: Letters) -> None:
    letters.die("a", "b", "c")
    ids = {letter.body: letter.message_id for letter in letters.port.list()}
    letters.port.delete(ids["b"])
    assert letters.dead() == ["a", "c"]
    with pytest.raises(NotFoundError, match=ids["b"]):
        letters.port.delete(ids["b"])
    assert [letter.body for letter in letters.port.list()] == ["a", "c"]


def test_a_missing_queue_is_unavailable(letters: Letters) -> None:
    letters.server.client.delete_queue(QueueUrl=letters.pair.dead_letters_url)
    with pytest.raises(UnavailableError, match="queue 'q'"):
        letters.port.redrive()


def test_an_unreachable_service_is_unavailable(ministack_server: Ministack) -> None:
    letters = Letters(ministack_queues(ministack_server), fifo=False)
    client = ministack_server.client("sqs", "http://127.0.0.1:9")
    with pytest.raises(UnavailableError, match="queue 'q'"):
        letters.open(client).redrive()


def test_a_message_that_dies_again_is_redriven_once(letters: Letters) -> None:
    letters.die("a", "b")
    client, real = letters.server.client, letters.server.client.delete_message_batch

    def delete_and_die(**request: Any) -> Any:
        answer = real(**request)
        # Another process receives them once more than allowed.
        while letters.queue.receive(10):
            pass
        letters.server.clock.pass_seconds(31)
        letters.queue.receive()
        return answer

    with patch.object(client, "delete_message_batch", side_effect=delete_and_die):
        assert letters.port.redrive() == 2
    assert sorted(letters.dead()) == ["a", "b"]


def test_a_refused_deletion_is_unavailable(letters: Letters) -> None:
    letters.die("a")
    refusals = {"Failed": [{"Id": "0", "Code": "ReceiptHandleIsInvalid"}]}
    with (
        patch.object(letters.server.client, "delete_message_batch", return_value=refusals),
        pytest.raises(UnavailableError, match="1 dead letters could not be deleted"),
    ):
        letters.port.redrive()
