"""Worlds of the disk's tests: a process that dies, a disk that fails, synchronisation in order."""

from collections.abc import Hashable
from dataclasses import dataclass

from simulation.calls import Fault
from simulation.disk import DirectHooks


class Killed(BaseException):
    """The process died at an operation of the disk."""


@dataclass
class Countdown(DirectHooks):
    """Ends the process at the last of a number of operations, of which there is no end at -1.

    `fault` is that of each operation in `faulty`.
    """

    left: int = -1
    fault: Fault | None = None
    faulty: tuple[str, ...] = ("write", "sync")
    name: str = "process"

    def process(self) -> Hashable:
        return self.name

    def before(self, operation: str, path: str) -> Fault | None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return self.fault if operation in self.faulty else None
