"""Worlds of the disk's tests: a process that dies, a disk that fails, synchronisation in order."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from simulation.calls import Fault
from simulation.disk import DirectHooks

T = TypeVar("T")


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


class InlineExecutor:
    """Runs each call when it is submitted, as the one thread of a simulated executor."""

    def submit(self, call: Callable[..., T], *arguments: object) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future
