import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.jobs.queue import MessageQueue, QueueCounts
from tests.contracts.conftest import Queues
from tests.examples import examples


def bodies(queue: MessageQueue, messages_max: int = 10) -> list[str]:
    return [message.body for message in queue.receive(messages_max)]


def test_messages_are_received_in_order_and_stay_until_deleted(queues: Queues) -> None:
    for body in ("a", "b", "c"):
        queues.plain.send(body)
    first, second = queues.again().receive(2)
    assert (first.body, first.receives) == ("a", 1)
    assert queues.is_now(first.sent_ms)
    assert queues.plain.counts() == QueueCounts(visible=1, in_flight=2, delayed=0, dead=0)
    queues.plain.delete(first.receipt)
    assert queues.list_stored() == ["b", "c"]
    assert second.body == "b"
    assert bodies(queues.plain) == ["c"]


def test_a_batch_keeps_the_order_of_messages(queues: Queues) -> None:
    queues.plain.send_all(["a", "b"])
    queues.plain.send_all([])
    queues.plain.send_all(["c"])
    messages = queues.again().receive(10)
    assert [m.body for m in messages] == ["a", "b", "c"]
    assert len({m.message_id for m in messages}) == 3
    assert all(queues.is_now(m.sent_ms) for m in messages)


def test_a_batch_sends_messages_to_their_groups(queues: Queues) -> None:
    queues.fifo.send_all(["g1", "h1", "g2"], ["g", "h", "g"])
    assert [(m.body, m.group) for m in queues.fifo.receive(10)] in (
        [("g1", "g"), ("h1", "h"), ("g2", "g")],
        [("g1", "g"), ("g2", "g"), ("h1", "h")],
    )
    with pytest.raises(InvalidRequestError, match="needs a group"):
        queues.fifo.send_all(["a"])
    with pytest.raises(InvalidRequestError, match="takes no group"):
        queues.plain.send_all(["a"], ["g"])


def test_a_batch_can_exceed_one_request(queues: Queues) -> None:
    messages = {f"{i}-{'x' * 20_000}" for i in range(37)}
    queues.plain.send_all(sorted(messages))
    assert sorted(queues.list_stored()) == sorted(messages)


def test_a_message_in_flight_is_invisible_until_its_timeout(queues: Queues) -> None:
    queues.plain.send("a")
    (first,) = queues.plain.receive()
    queues.clock.pass_seconds(29)
    assert bodies(queues.again()) == []
    queues.clock.pass_seconds(1)
    (second,) = queues.again().receive()
    assert (second.message_id, second.receives) == (first.message_id, 2)
    assert second.receipt != first.receipt


def test_extending_sets_the_visibility_timeout_from_now(queues: Queues) -> None:
    queues.plain.send("a")
    (message,) = queues.plain.receive()
    queues.clock.pass_seconds(20)
    queues.plain.extend(message.receipt, 30)
    queues.clock.pass_seconds(29)
    assert bodies(queues.plain) == []
    queues.clock.pass_seconds(1)
    assert bodies(queues.plain) == ["a"]


def test_a_stale_receipt_has_no_effect(queues: Queues) -> None:
    queues.skip_on_moto("takes every receipt that it ever gave")
    queues.plain.send("a")
    (first,) = queues.plain.receive()
    queues.clock.pass_seconds(30)
    (second,) = queues.plain.receive()
    with pytest.raises(StateMovedOnError, match="no longer held"):
        queues.plain.extend(first.receipt, 30)
    queues.plain.delete(first.receipt)
    queues.plain.release(first.receipt)
    assert queues.plain.counts().in_flight == 1
    queues.plain.delete(second.receipt)
    queues.plain.delete(second.receipt)
    assert queues.list_stored() == []


def test_a_returned_message_is_received_at_once_or_after_its_delay(queues: Queues) -> None:
    queues.plain.send("a")
    (message,) = queues.plain.receive()
    queues.plain.release(message.receipt)
    (message,) = queues.plain.receive()
    queues.plain.release(message.receipt, delay_seconds=10)
    assert bodies(queues.plain) == []
    counts = queues.plain.counts()
    # SQS counts a message as delayed only before its first receive.
    assert (counts.in_flight, counts.delayed) == ((1, 0) if queues.is_sqs else (0, 1))
    queues.clock.pass_seconds(10)
    assert bodies(queues.plain) == ["a"]


def test_a_delayed_message_is_invisible_until_its_delay_ends(queues: Queues) -> None:
    queues.plain.send("later", delay_seconds=60)
    queues.plain.send("now")
    assert bodies(queues.plain) == ["now"]
    assert queues.plain.counts() == QueueCounts(visible=0, in_flight=1, delayed=1, dead=0)
    queues.clock.pass_seconds(60)
    assert "later" in bodies(queues.plain)


def test_a_receive_waits_for_a_message_or_the_timeout(queues: Queues) -> None:
    start = time.monotonic()
    assert queues.plain.receive(wait_seconds=0.2) == ()
    assert 0.19 <= time.monotonic() - start < 30
    queues.plain.send("a")
    assert len(queues.plain.receive(wait_seconds=60)) == 1
    assert time.monotonic() - start < 50


def test_a_deduplication_id_adds_one_message_within_five_minutes(queues: Queues) -> None:
    queues.skip_on_moto("forgets what was deleted")
    first = queues.fifo.send("a", group="g", deduplication_id="x")
    (message,) = queues.fifo.receive()
    queues.fifo.delete(message.receipt)
    assert queues.fifo.send("a", group="g", deduplication_id="x") == first
    assert queues.list_stored() == []
    queues.fifo.send("b", group="g", deduplication_id="y")
    queues.clock.pass_seconds(301)
    assert queues.fifo.send("a", group="g", deduplication_id="x") != first
    assert queues.list_stored() == ["b", "a"]
    with pytest.raises(InvalidRequestError, match="takes no deduplication id"):
        queues.plain.send("a", deduplication_id="x")


def test_messages_sent_together_have_deduplication_ids_too(queues: Queues) -> None:
    queues.fifo.send_all(["a", "b"], ["g", "h"], ["x", "y"])
    queues.fifo.send_all(["c", "d"], ["g", "h"], ["z", "y"])
    assert queues.list_stored() == ["a", "b", "c"]
    with pytest.raises(InvalidRequestError, match="takes no deduplication id"):
        queues.plain.send_all(["a"], deduplication_ids=["x"])


def test_the_same_body_is_two_messages_of_a_fifo_queue(queues: Queues) -> None:
    assert queues.fifo.send("a", group="g") != queues.fifo.send("a", group="g")
    queues.fifo.send_all(["a", "a"], ["g", "g"])
    assert queues.list_stored() == ["a"] * 4


def test_an_invalid_message_is_refused(queues: Queues) -> None:
    if not queues.is_sqs:
        pytest.skip("a local queue takes any text")
    for body, why in (("x" * 1_048_577, "expected at most 1,048,576"), ("", "empty")):
        with pytest.raises(InvalidRequestError, match=f"queue 'plain'.*{why}"):
            queues.plain.send(body)
        with pytest.raises(InvalidRequestError, match=f"queue 'plain'.*{why}"):
            queues.plain.send_all(["good", body])
    if queues.server != "moto":
        with pytest.raises(InvalidRequestError, match="InvalidMessageContents"):
            queues.plain.send("\x01")
    with pytest.raises(InvalidRequestError, match="at most 900 s"):
        queues.plain.send("a", delay_seconds=901)
    with pytest.raises(InvalidRequestError, match="at most 0 s"):
        queues.fifo.send("a", delay_seconds=1, group="g")


def test_a_message_over_its_receives_is_a_dead_letter(queues: Queues) -> None:
    queues.plain.send("poison")
    for _ in range(3):
        assert bodies(queues.plain) == ["poison"]
        queues.clock.pass_seconds(30)
    assert bodies(queues.plain) == []
    assert queues.plain.counts() == QueueCounts(visible=0, in_flight=0, delayed=0, dead=1)
    (letter,) = queues.plain_dead.list()
    assert letter.body == "poison"
    if queues.is_sqs:
        assert letter.receives >= 3
    else:
        assert (letter.receives, letter.died_ms) == (3, queues.clock())
    assert queues.list_stored() == []


def test_redriven_messages_have_no_receives(queues: Queues) -> None:
    for body in ("a", "b"):
        queues.plain.send(body)
    for _ in range(3):
        assert bodies(queues.plain) == ["a", "b"]
        queues.clock.pass_seconds(30)
    assert bodies(queues.plain) == []
    assert queues.plain_dead.redrive() == 2
    assert queues.plain_dead.list() == ()
    assert [(m.body, m.receives) for m in queues.plain.receive(10)] == [("a", 1), ("b", 1)]
    assert queues.plain_dead.redrive() == 0


def test_a_dead_letter_can_be_deleted(queues: Queues) -> None:
    message_id = queues.plain.send("a")
    with pytest.raises(NotFoundError, match=message_id):
        queues.plain_dead.delete(message_id)
    for _ in range(3):
        queues.plain.receive()
        queues.clock.pass_seconds(30)
    queues.plain.receive()
    assert len(queues.plain_dead.list()) == len(queues.plain_dead.list()) == 1
    queues.plain_dead.delete(message_id)
    assert queues.plain_dead.list() == ()
    assert queues.plain_dead.redrive() == 0


def test_a_fifo_group_has_one_receiver_at_a_time(queues: Queues) -> None:
    for body in ("g1", "g2"):
        queues.fifo.send(body, group="g")
    queues.fifo.send("h1", group="h")
    (first,) = queues.fifo.receive(1)
    assert first.body == "g1"
    assert bodies(queues.fifo) == ["h1"]
    queues.fifo.delete(first.receipt)
    assert bodies(queues.fifo) == ["g2"]


def test_a_fifo_group_keeps_its_order_after_a_returned_message(queues: Queues) -> None:
    queues.skip_on_moto("gives a group to two receivers")
    for body in ("g1", "g2", "g3"):
        queues.fifo.send(body, group="g")
    (first,) = queues.fifo.receive(1)
    queues.fifo.release(first.receipt, delay_seconds=5)
    assert bodies(queues.fifo) == []
    queues.clock.pass_seconds(5)
    assert bodies(queues.fifo) == ["g1", "g2", "g3"]
    queues.clock.pass_seconds(30)
    assert bodies(queues.fifo, 2) == ["g1", "g2"]
    assert bodies(queues.fifo) == []


def test_an_earlier_message_of_a_group_waits_while_a_later_one_is_in_flight(
    queues: Queues,
) -> None:
    for body in ("g1", "g2"):
        queues.fifo.send(body, group="g")
    first, second = queues.fifo.receive(2)
    queues.fifo.release(first.receipt)
    assert bodies(queues.fifo) == []
    queues.fifo.delete(second.receipt)
    assert bodies(queues.fifo) == ["g1"]


def test_a_poison_message_does_not_block_its_group_for_ever(queues: Queues) -> None:
    queues.fifo.send("poison", group="g")
    queues.fifo.send("good", group="g")
    for _ in range(3):
        assert bodies(queues.fifo, 1) == ["poison"]
        queues.clock.pass_seconds(30)
    assert bodies(queues.fifo) == ["good"]
    assert [letter.body for letter in queues.fifo_dead.list()] == ["poison"]


def test_only_fifo_queues_need_a_group(queues: Queues) -> None:
    with pytest.raises(InvalidRequestError, match="needs a group"):
        queues.fifo.send("a")
    with pytest.raises(InvalidRequestError, match="takes no group"):
        queues.plain.send("a", group="g")


GROUPS = ("g", "h", "i")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(GROUPS)),
        st.tuples(st.just("receive"), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("give back"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.integers(1, 20)),
    ),
    max_size=25,
)


@given(STEPS)
@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_groups_keep_their_order_under_random_operations(
    queues: Queues, steps: list[tuple[str, int]]
) -> None:
    """Deletes all messages first, because all examples share the queue."""
    drain(queues)
    messages, result, number = {g: [] for g in GROUPS}, {g: [] for g in GROUPS}, 0
    held: list = []
    for step, value in steps:
        if step == "send":
            queues.fifo.send(f"{number}", group=value)
            messages[value].append(f"{number}")
            number += 1
        elif step == "receive":
            responses = queues.fifo.receive(value)
            for group in {m.group for m in responses}:
                pending = [b for b in messages[group] if b not in result[group]]
                came = [m.body for m in responses if m.group == group]
                dead = [letter.body for letter in queues.fifo_dead.list()]
                alive = [b for b in pending if b not in dead]
                assert came == alive[: len(came)]
            held.extend(responses)
        elif held and step in {"delete", "give back"}:
            message = held.pop(value % len(held))
            if step == "give back":
                queues.fifo.release(message.receipt)
            else:
                previous = len(queues.list_stored())
                queues.fifo.delete(message.receipt)
                if len(queues.list_stored()) < previous:
                    result[message.group].append(message.body)
        elif step == "wait":
            queues.clock.pass_seconds(value)


def drain(queues: Queues) -> None:
    while queues.fifo.counts().unfinished or queues.fifo.counts().dead:
        queues.clock.pass_seconds(60)
        queues.fifo_dead.redrive()
        for message in queues.fifo.receive(100):
            queues.fifo.delete(message.receipt)
