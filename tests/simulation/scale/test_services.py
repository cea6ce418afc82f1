"""The services keep their limits, and lose nothing."""

from dataclasses import replace
from random import Random

import pytest

from simulation.scale.functions import Functions, Source
from simulation.scale.launcher import Launcher
from simulation.scale.ledger import Ledger
from simulation.scale.limits import (
    IN_FLIGHT_FIFO,
    PARTITION_WRITE_UNITS,
    Account,
)
from simulation.scale.log import Capacity
from simulation.scale.queue import Message, Queue
from simulation.scale.rules import FunctionRule, QueueRule, ScheduleRule
from simulation.scale.timeline import Action, Timeline

FUNCTION = FunctionRule("f", 1024, 300)
FIFO = QueueRule("q", True, 30, 3, FUNCTION, 10, 4)
STANDARD = replace(FIFO, fifo=False, at_once_max=None)


def test_events_run_in_order_of_time_and_then_of_their_making() -> None:
    timeline, order = Timeline(), []
    for name, seconds in (("late", 2.0), ("first", 1.0), ("second", 1.0), ("never", 9.0)):
        timeline.after(seconds, lambda name=name: order.append(name))  # type: ignore[misc]

    timeline.run(5.0)

    assert order == ["first", "second", "late"]
    assert timeline.now == 5.0


def test_a_group_of_a_fifo_queue_has_one_batch_in_flight() -> None:
    queue = Queue(FIFO, Timeline())
    for number in range(15):
        queue.send(number, group=number % 2)

    first = queue.receive(10)
    second = queue.receive(10)

    assert [each.content for each in first] == [*range(0, 15, 2), 1, 3]
    assert second == []
    for message in first:
        queue.delete(message)
    assert [each.content for each in queue.receive(10)] == [5, 7, 9, 11, 13]


def test_a_message_that_is_received_too_often_is_a_dead_letter() -> None:
    queue = Queue(STANDARD, Timeline())
    queue.send("poison")
    for _ in range(STANDARD.receives_max):
        (message,) = queue.receive(1)
        queue.release(message)

    assert queue.receive(1) == []
    assert queue.counts().dead == 1


def test_no_more_messages_are_in_flight_than_the_limit() -> None:
    queue = Queue(FIFO, Timeline())
    for group in range(60):
        queue.send(group, group, weight=500)
    while queue.receive(500):
        pass

    assert queue.counts().in_flight == queue.in_flight_most == IN_FLIGHT_FIFO
    assert queue.counts().visible == 60 * 500 - IN_FLIGHT_FIFO


@pytest.mark.parametrize("rule", [FIFO, STANDARD], ids=["fifo", "standard"])
@pytest.mark.parametrize("concurrency", [3, 50])
def test_what_goes_into_a_queue_comes_out_or_is_in_it(rule: QueueRule, concurrency: int) -> None:
    timeline, random = Timeline(), Random(1)
    functions = Functions(timeline, Account(concurrency), [FUNCTION], Ledger(), random)
    queue, handled, running = Queue(rule, timeline), [], []

    def handle(messages: list[Message]) -> tuple[float, Action]:
        running.append(functions.running.total())
        return random.uniform(0.1, 3.0), lambda: handled.extend(messages)

    Source(timeline, functions, queue, Ledger(), handle)
    timeline.every(0.05, lambda: queue.send("x", random.randrange(8)))
    for seconds in range(10, 80, 10):
        timeline.run(seconds)
        counts = queue.counts()
        assert queue.sent == queue.deleted + counts.unfinished + counts.dead
    assert len(handled) >= queue.deleted > 50
    assert functions.running_most <= min(concurrency, rule.at_once_max or concurrency)


def test_throttled_messages_return_and_become_dead_letters() -> None:
    timeline = Timeline()
    functions = Functions(timeline, Account(10), [FUNCTION], Ledger(), Random(0))
    functions.is_out = True
    queue = Queue(FIFO, timeline)
    Source(timeline, functions, queue, Ledger(), lambda _: (1.0, lambda: None))
    queue.send("x")

    timeline.run(FIFO.visibility_seconds * (FIFO.receives_max + 1))

    assert queue.counts().dead == 1
    assert functions.throttled > 10


def test_a_throttled_schedule_is_dropped_at_its_largest_age() -> None:
    timeline, runs = Timeline(), []
    functions = Functions(timeline, Account(10), [FUNCTION], Ledger(), Random(0))
    rule = ScheduleRule("s", 60, 60, FUNCTION)
    functions.schedule(rule, lambda: (1.0, lambda: runs.append(timeline.now)), 0.0)
    functions.is_out = True
    timeline.run(600.0)
    functions.is_out = False
    timeline.run(900.0)

    assert functions.dropped == pytest.approx(9, abs=1)
    assert 4 <= len(runs) <= 7


def test_an_account_cannot_reserve_its_last_concurrency() -> None:
    function = replace(FUNCTION, reserved=10)
    with pytest.raises(ValueError, match="cannot reserve 10"):
        Functions(Timeline(), Account(50), [function], Ledger(), Random(0))


def test_launches_keep_the_bucket_and_the_processors() -> None:
    timeline = Timeline()
    launcher = Launcher(timeline, Account(fargate_cpus=400))

    assert len(launcher.launch(60, 4.0)) == 60
    assert len(launcher.launch(300, 4.0)) == 40
    assert launcher.cpus_used == launcher.cpus_most == 400
    launcher.end(4.0 * 100)
    # The bucket has 20 a second.
    assert len(launcher.launch(300, 1.0)) <= 20
    timeline.run(5.0)
    assert 100 <= len(launcher.launch(300, 1.0)) <= 200


def test_a_partition_key_gives_its_units_a_second_and_no_more() -> None:
    timeline = Timeline()
    partition = Capacity(timeline, PARTITION_WRITE_UNITS)
    taken = 0
    for tenth in range(100):
        timeline.run(tenth / 10)
        while partition.take(4):
            taken += 4

    assert taken == pytest.approx(PARTITION_WRITE_UNITS * 10.9, rel=0.01)
    assert partition.wait(PARTITION_WRITE_UNITS) == pytest.approx(1.0, abs=0.1)
