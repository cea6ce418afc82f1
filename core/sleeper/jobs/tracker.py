"""The ports of the job tracker, the task tracker and task launchers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.jobs.event import JobEvent, JobKind, TaskEvent
from sleeper.jobs.queue import QueueCounts
from sleeper.jobs.status import JobStatus, TaskStatus
from sleeper.tables import TableId

RECENT_JOBS = 100
"""The default number of jobs or tasks of a query."""


class JobTracker(Protocol):
    """The tracker of jobs. Events may arrive twice and in any order."""

    def record(self, *events: JobEvent) -> None:
        """Stores the events, those of a run all or none. Idempotent.

        After an error, events of some runs may be stored: record them again.
        """

    def job(self, table_id: TableId, job_id: str) -> JobStatus:
        """Returns the job with that id. NotFoundError if none exists."""

    def unknown(self, table_id: TableId, job_ids: Sequence[str]) -> tuple[str, ...]:
        """Returns the ids without events, in the given order."""

    def recent(
        self,
        kind: JobKind | None = None,
        table_id: TableId | None = None,
        limit: int = RECENT_JOBS,
    ) -> tuple[JobStatus, ...]:
        """Returns the jobs with the latest events, newest first."""

    def remove_before(self, time_ms: int) -> int:
        """Deletes jobs without events since then. Returns the number of deleted jobs."""


class TaskTracker(Protocol):
    """The tracker of tasks. Events may arrive twice and in any order."""

    def record(self, event: TaskEvent) -> None:
        """Stores the event. Idempotent."""

    def task(self, task_id: str) -> TaskStatus:
        """Returns the task with that id. NotFoundError if none exists."""

    def recent(self, kind: str | None = None, limit: int = RECENT_JOBS) -> tuple[TaskStatus, ...]:
        """Returns the tasks with the latest start or end, newest first."""

    def remove_before(self, time_ms: int) -> int:
        """Deletes tasks without events since then. Returns the number of deleted tasks."""


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
