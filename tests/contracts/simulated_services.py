"""The simulated services as one more implementation that the suites run over."""

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from simulation.calls import Call, DirectCalls, Fault
from simulation.services.world import Services
from tests.contracts.sqs_queues import MovedClock, SqsServer
from tests.servers.dynoxide import DynamoTables, make_tables

T = TypeVar("T")


class ThreadSafeCalls:
    """Implements `simulation.calls.Calls`, one call at a time, because suites have threads."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._calls = DirectCalls(clock)
        self._lock = threading.RLock()
        self.now_ms = self._calls.now_ms
        self.choose = self._calls.choose

    def __call__(
        self, call: Call, effect: Callable[[], T], error: Callable[[Fault], Exception]
    ) -> T:
        with self._lock:
            return self._calls(call, effect, error)


def simulated_services(folder: Path | None = None) -> Services:
    """Returns services on the time of this machine, with objects in a folder."""
    return Services(ThreadSafeCalls(lambda: int(time.time() * 1000)), time.sleep, folder)


def simulated_tables() -> DynamoTables:
    """Returns the tables of one test."""
    services = simulated_services()
    client = services.client("dynamodb")
    names = make_tables(client, uuid.uuid4().hex[:8])
    return DynamoTables(client, names, lambda: services.client("dynamodb"))


def simulated_queues() -> SqsServer:
    """Returns the queues of one test, on a clock that it moves."""
    ahead = [0.0]

    def move(seconds: float) -> None:
        ahead[0] += seconds

    clock = MovedClock(lambda: ahead[0], move)
    services = Services(ThreadSafeCalls(clock), time.sleep)

    def bodies(url: str) -> list[str]:
        return [m.body for m in services.sqs.find(url, "list").messages.values()]

    return SqsServer(services.client("sqs"), clock, bodies)
