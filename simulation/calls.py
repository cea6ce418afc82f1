"""Calls of the simulated world: where the scheduler switches and where faults happen.

Each simulated service, disk or port passes its effects to `Calls`. The world's implementation
switches to another thread, ends the process, delays, refuses or repeats the call, or loses its
response. `call_directly` does none of this, so that contract suites can try a service by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

T = TypeVar("T")


class Fault(StrEnum):
    """A fault that the caller sees as an error of the service.

    `LOST` comes after the effect: the service has done it, and its response is lost.
    """

    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    LOST = "lost"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operation of a service, such as `dynamodb`, `sqs`, `s3` or `disk`."""

    service: str
    operation: str
    target: str = ""

    def __str__(self) -> str:
        return f"{self.service}.{self.operation} {self.target}".rstrip()


class Calls(Protocol):
    """Carries out calls in the simulated world."""

    def __call__(
        self, call: Call, effect: Callable[[], T], error: Callable[[Fault], Exception], /
    ) -> T:
        """Returns the effect's result, or raises `error(fault)` if the world chose a fault."""

    def now_ms(self) -> int:
        """Returns the service's own time, in milliseconds since the epoch."""

    def choose(self, probability: float, /) -> bool:
        """Returns a decision of the seeded random source, such as a second delivery."""


class DirectCalls:
    """Carries out calls without faults, at the time of a clock."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def __call__(
        self, _call: Call, effect: Callable[[], T], _error: Callable[[Fault], Exception]
    ) -> T:
        return effect()

    def now_ms(self) -> int:
        return self._clock()

    def choose(self, _probability: float) -> bool:
        return False
