"""The port of what starts tasks, and how many it is asked to start."""

from dataclasses import dataclass
from typing import Protocol

from sleeper.jobs.queue import QueueCounts


@dataclass(frozen=True, slots=True)
class Launch:
    """How many tasks were started, and why others were not."""

    started: int
    failures: tuple[str, ...] = ()


class TaskLauncher(Protocol):
    """Starts tasks of one kind, each in a process of its own somewhere."""

    def running(self) -> int:
        """How many run or are about to."""

    def start(self, count: int) -> Launch:
        """Starts up to so many. Where there is no room for more now, it says so and is no error."""


def tasks_to_start(counts: QueueCounts, running: int, running_max: int) -> int:
    """One task for each message that waits or is worked on, at most the maximum.

    Messages in flight count, because each has a task among those that run. Delayed ones wait
    for another look.
    """
    wanted = min(counts.visible + counts.in_flight, running_max)
    return max(0, wanted - running)
