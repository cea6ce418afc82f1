"""A worker keeps its message while it works."""

import time
from typing import Any

from sleeper.errors import StateMovedOnError, UnavailableError
from sleeper.jobs.queue import Message
from sleeper.wiring.worker import _kept_in_flight

MESSAGE = Message("m", "{}", "receipt", 1, 0)


class BusyQueue:
    """Does not answer the first time that it is asked for more time."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def extend(self, *_: Any) -> None:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


def test_a_queue_that_did_not_answer_is_asked_again() -> None:
    queue = BusyQueue(UnavailableError("busy"))
    with _kept_in_flight(queue, MESSAGE, 0.03, 0.01):  # type: ignore[arg-type]
        deadline = time.monotonic() + 10
        while queue.asked < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert queue.asked >= 3


def test_a_message_that_is_lost_is_not_asked_for_again() -> None:
    queue = BusyQueue(StateMovedOnError("gone"))
    with _kept_in_flight(queue, MESSAGE, 0.03, 0.01):  # type: ignore[arg-type]
        time.sleep(0.2)
    assert queue.asked == 1
