"""The port of task launchers, and the number of tasks to start."""

from dataclasses import dataclass
from typing import Protocol

from sleeper.jobs.queue import QueueCounts


@dataclass(frozen=True, slots=True)
class Launch:
    """The number of started tasks, and the reasons of failures."""

    started: int
    failures: tuple[str, ...] = ()


class TaskLauncher(Protocol):
    """Starts tasks of one kind, each in a process of its own somewhere."""

    def running(self) -> int:
        """Returns the number of tasks that run or are starting."""

    def start(self, count: int) -> Launch:
        """Starts up to `count` tasks. Lack of capacity is a failure of the launch, not an error."""


def tasks_to_start(counts: QueueCounts, running: int, running_max: int) -> int:
    """Returns the number of tasks to start: one per visible message, up to the maximum.

    Messages in flight count too, because each occupies a running task.
    """
    return max(0, min(counts.visible + counts.in_flight, running_max) - running)
