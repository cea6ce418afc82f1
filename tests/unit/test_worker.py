"""A worker keeps its message while it works."""

import json
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sleeper.errors import StateMovedOnError, UnavailableError
from sleeper.jobs.queue import Message
from sleeper.tables.table_ref import TableRef
from sleeper.wiring.local_instance import make_local_instance, open_local_instance
from sleeper.wiring.queue_name import QueueName
from sleeper.wiring.worker import Worker, WorkerSettings, _kept_in_flight

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


def test_a_job_that_fails_is_tried_again_later_each_time(tmp_path: Path) -> None:
    make_local_instance(tmp_path / "instance", "test")
    given_back: list[float] = []

    class Queue(BusyQueue):
        def receive(self, wait_seconds: float) -> tuple[Message, ...]:
            body = json.dumps({"tableId": "0000000a", "partitionId": "root"})
            return (replace(MESSAGE, body=body, receives=len(given_back) + 1),)

        def give_back(self, _: str, delay_seconds: float) -> None:
            given_back.append(delay_seconds)

    def unavailable(_: str) -> TableRef:
        raise UnavailableError("no answer")

    queue = Queue()
    with closing(open_local_instance(tmp_path / "instance")) as opened:
        tables = SimpleNamespace(by_id=unavailable)
        known = replace(opened, queue=lambda _: queue, tables=tables)  # type: ignore[arg-type, return-value]
        settings = WorkerSettings("split", (QueueName.SPLITTING,), retry_seconds=(10.0, 120.0))
        worker = Worker(known, "t", threading.Event(), settings)
        for _ in range(4):
            assert worker.run_one()
    assert given_back == [10.0, 120.0, 120.0, 120.0]
