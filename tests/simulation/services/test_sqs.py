"""The simulated SQS: repeated sends, batches in part, and what standard queues leave open."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from simulation.calls import Fault
from simulation.services.sqs.messages import Message
from simulation.services.world import Services
from sleeper.aws.queue import SqsQueue
from sleeper.jobs.queue import QueueSettings
from tests.servers.sqs import make_queue
from tests.simulation.services.worlds import World


@pytest.fixture
def client(services: Services) -> Any:
    return services.client("sqs")


def open_queue(client: Any, fifo: bool = False) -> SqsQueue:
    settings = QueueSettings(visibility_timeout_seconds=30, receives_max=9, fifo=fifo)
    pair = make_queue(client, "q", settings)
    return SqsQueue(client, "q", pair.url, pair.dead_letters_url)


def bodies(queue: SqsQueue) -> list[str]:
    return [message.body for message in queue.receive(10)]


def only(*probabilities: float) -> Callable[[float], bool]:
    return lambda probability: probability in probabilities


def test_a_send_whose_response_is_lost_sends_twice_except_to_a_fifo_queue(
    client: Any, world: World
) -> None:
    plain, fifo = open_queue(client), open_queue(client, fifo=True)
    world.faults = [Fault.LOST]
    plain.send("a")
    world.faults = [Fault.LOST]
    fifo.send_all(["a", "b"], ["g", "g"])
    assert bodies(plain) == ["a", "a"]
    assert bodies(fifo) == ["a", "b"]


def test_a_receive_whose_response_is_lost_hides_its_messages(client: Any, world: World) -> None:
    queue = open_queue(client)
    queue.send("a")
    world.faults = [Fault.LOST]
    assert bodies(queue) == []
    world.pass_seconds(30)
    (again,) = queue.receive()
    assert again.receives == 2


def test_a_batch_is_sent_in_part_and_the_rest_again(client: Any, world: World) -> None:
    queue = open_queue(client)
    answers = iter([True, False, True, True] + [False] * 100)
    world.chosen = lambda probability: probability == 0.02 and next(answers)
    queue.send_all(list("abcde"))
    world.chosen = only()
    assert sorted(bodies(queue)) == list("abcde")


def test_a_standard_queue_delivers_again_later_and_after_a_deletion(
    client: Any, world: World
) -> None:
    queue = open_queue(client)
    for body in "ab":
        queue.send(body)
    world.chosen = only(0.01)
    (first, _) = queue.receive(10)
    world.chosen = only()
    assert bodies(queue) == ["a", "b"]
    world.pass_seconds(30)
    world.chosen = only(0.005)
    (message,) = queue.receive(1)
    queue.delete(message.receipt)
    world.chosen = only()
    world.pass_seconds(30)
    assert bodies(queue) == ["a", "b"]
    assert message.message_id == first.message_id


def test_a_standard_queue_changes_the_order_and_answers_a_short_poll_with_nothing(
    client: Any, world: World
) -> None:
    queue = open_queue(client)
    for body in "abc":
        queue.send(body)
    answers = iter([True] + [False] * 100)
    world.chosen = lambda probability: probability == 0.1 and next(answers)
    assert bodies(queue) == ["b", "c"]
    world.chosen = only(0.03)
    assert bodies(queue) == []
    world.chosen = only()
    assert bodies(queue) == ["a"]


def test_a_fifo_queue_never_does(client: Any, world: World) -> None:
    queue = open_queue(client, fifo=True)
    queue.send_all(list("abc"), ["g"] * 3)
    world.chosen = lambda probability: probability != 0.02
    messages = queue.receive(10)
    assert [m.body for m in messages] == list("abc")
    assert bodies(queue) == []
    for message in messages:
        queue.delete(message.receipt)
    world.pass_seconds(30)
    assert bodies(queue) == []


def test_a_fifo_queue_keeps_the_order_of_a_group(client: Any, world: World) -> None:
    queue = open_queue(client, fifo=True)
    queue.send_all(["g1", "g2", "h1"], ["g", "g", "h"])
    (first,) = queue.receive(1)
    assert first.body == "g1"
    assert bodies(queue) == ["h1"]
    world.pass_seconds(30)
    first, second, _ = queue.receive(10)
    assert [first.body, second.body] == ["g1", "g2"]
    queue.release(second.receipt)
    assert bodies(queue) == []
    queue.delete(first.receipt)
    assert bodies(queue) == ["g2"]


def test_a_deduplication_id_is_kept_for_five_minutes(client: Any, world: World) -> None:
    queue = open_queue(client, fifo=True)
    message = {"MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    for seconds, count in ((0, 1), (299, 0), (1, 1)):
        world.pass_seconds(seconds)
        client.send_message(QueueUrl=queue.url, **message)
        received = queue.receive(10)
        assert len(received) == count
        for each in received:
            queue.delete(each.receipt)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_returns_after_its_timeout_and_is_dead_after_its_last_receive(
    client: Any, world: World, fifo: bool
) -> None:
    queue = open_queue(client, fifo)
    queue.send("a", group="g" if fifo else None)
    for receives in range(1, 10):
        (message,) = queue.receive(10)
        assert message.receives == receives
        world.pass_seconds(29)
        assert bodies(queue) == []
        world.pass_seconds(1)
    assert bodies(queue) == []
    assert queue.counts().dead == 1


def test_a_receive_looks_at_few_messages(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, looks = open_queue(client), 0
    queue.send_all([str(number) for number in range(1_000)])
    is_visible = Message.is_visible

    def look(message: Message, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return is_visible(message, now_ms)

    monkeypatch.setattr(Message, "is_visible", look)
    for _ in range(100):
        for message in queue.receive(10):
            queue.delete(message.receipt)
    assert looks <= 2 * 1_000 + 100


def test_a_long_poll_waits_in_virtual_time_for_a_message(client: Any, world: World) -> None:
    queue = open_queue(client)
    queue.send("later", delay_seconds=7)
    start = world.now
    response = client.receive_message(QueueUrl=queue.url, WaitTimeSeconds=20)
    assert [m["Body"] for m in response["Messages"]] == ["later"]
    assert world.now - start == 7_000
    client.receive_message(QueueUrl=queue.url, WaitTimeSeconds=20)
    assert world.now - start == 27_000


def test_messages_expire(client: Any, world: World) -> None:
    queue = open_queue(client)
    queue.send("old")
    world.pass_seconds(4 * 86_400 - 10)
    queue.send("new")
    world.pass_seconds(100)
    assert bodies(queue) == ["new"]


def test_a_message_is_in_flight_for_twelve_hours_at_most(client: Any, world: World) -> None:
    queue = open_queue(client)
    queue.send("a")
    (message,) = queue.receive()
    queue.extend(message.receipt, 43_000)
    world.pass_seconds(42_000)
    with pytest.raises(Exception, match="no longer held"):
        queue.extend(message.receipt, 2_000)


def test_a_fifo_queue_takes_300_requests_a_second(
    client: Any, services: Services, world: World
) -> None:
    services.sqs.is_limited = True
    queue = open_queue(client, fifo=True)
    start = world.now
    for i in range(301):
        queue.send(f"{i}", group="g")
    assert world.now - start == 1_500
    high = make_queue(client, "high", QueueSettings(fifo=True))
    throughput = {"FifoThroughputLimit": "perMessageGroupId"}
    services.sqs.find(high.url, "").attributes.update(throughput)
    start = world.now
    for group in ("g", "h"):
        for i in range(300):
            SqsQueue(client, "high", high.url, high.url).send(f"{i}", group=group)
    assert world.now == start
    SqsQueue(client, "high", high.url, high.url).send("300", group="g")
    assert world.now - start == 500


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"Entries": []}, "EmptyBatchRequest"),
        ({"Entries": [{"Id": str(i), "MessageBody": "a"} for i in range(11)]}, "TooManyEntries"),
        ({"Entries": [{"Id": "1", "MessageBody": "a"}] * 2}, "BatchEntryIdsNotDistinct"),
        (
            {"Entries": [{"Id": str(i), "MessageBody": "x" * 600_000} for i in range(2)]},
            "BatchRequestTooLong",
        ),
    ],
)
def test_invalid_batches(client: Any, request_: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError, match=code):
        client.send_message_batch(QueueUrl=open_queue(client).url, **request_)


def test_a_missing_queue(client: Any) -> None:
    url = open_queue(client).url
    client.delete_queue(QueueUrl=url)
    with pytest.raises(ClientError, match="NonExistentQueue"):
        client.get_queue_url(QueueName="q")
    with pytest.raises(ClientError, match="NonExistentQueue"):
        client.receive_message(QueueUrl=url)
