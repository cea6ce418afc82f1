"""Decisions of the world at each operation of the disk.

A *process* is a process of the simulated world: any hashable value that stands for it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from simulation.calls import Fault


class DiskHooks(Protocol):
    """The world of a disk. Any method may be called from any thread."""

    def process(self) -> Hashable:
        """Returns the process to which the current thread belongs."""

    def before(self, operation: str, path: str, /) -> Fault | None:
        """Returns the fault of an operation, which then has no effect.

        The world may run other threads first. It raises a BaseException of its own if the process
        is dead, and then, too, the operation has no effect.
        """

    def sleep(self, seconds: float, /) -> None:
        """Lets virtual time pass."""

    def random(self, count: int, /) -> bytes:
        """Returns random bytes of the seed."""

    def now_ms(self) -> int:
        """Returns the virtual time, in milliseconds since the epoch."""


@dataclass
class DirectHooks:
    """A world of one process without faults, whose time passes only in sleeps."""

    source: Random
    time_ms: float = 1_767_225_600_000.0  # 2026-01-01T00:00:00Z

    def process(self) -> Hashable:
        return "process"

    def before(self, _operation: str, _path: str) -> Fault | None:
        return None

    def sleep(self, seconds: float) -> None:
        self.time_ms += seconds * 1000

    def random(self, count: int) -> bytes:
        return self.source.randbytes(count)

    def now_ms(self) -> int:
        return int(self.time_ms)
