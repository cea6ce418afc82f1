"""The simulated services as one more implementation that the suites run over."""

import threading
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from simulation.calls import Call, DirectCalls, Fault
from simulation.services.world import Services
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


def simulated_services() -> Services:
    """Returns services on the time of this machine."""
    return Services(ThreadSafeCalls(lambda: int(time.time() * 1000)), time.sleep)


def simulated_tables() -> DynamoTables:
    """Returns the tables of one test."""
    services = simulated_services()
    client = services.client("dynamodb")
    names = make_tables(client, uuid.uuid4().hex[:8])
    return DynamoTables(client, names, lambda: services.client("dynamodb"))
