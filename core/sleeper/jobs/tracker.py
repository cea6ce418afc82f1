"""The ports of the job tracker and the task tracker."""

from collections.abc import Sequence
from typing import Protocol

from sleeper.jobs.event import JobEvent, JobKind, TaskEvent
from sleeper.jobs.status import JobStatus, TaskStatus
from sleeper.tables.table_ref import TableId

RECENT_JOBS = 100
"""How many jobs or tasks a query gives unless told."""


class JobTracker(Protocol):
    """What became of jobs. Events may come twice and in any order."""

    def record(self, *events: JobEvent) -> None:
        """Keeps the events: those of a run all or none. One that is kept already changes nothing.

        After an error it is not known which jobs' events were kept: record them again.
        """

    def job(self, table_id: TableId, job_id: str) -> JobStatus:
        """The job of that id, or NotFoundError."""

    def unknown(self, table_id: TableId, job_ids: Sequence[str]) -> tuple[str, ...]:
        """Which of these the tracker has heard nothing of, in the order given."""

    def recent(
        self,
        kind: JobKind | None = None,
        table_id: TableId | None = None,
        limit: int = RECENT_JOBS,
    ) -> tuple[JobStatus, ...]:
        """The jobs that something happened to last, newest first, narrowed as asked."""

    def remove_before(self, time_ms: int) -> int:
        """Forgets jobs that nothing happened to since then. Returns how many."""


class TaskTracker(Protocol):
    """What became of tasks. Events may come twice and in any order."""

    def record(self, event: TaskEvent) -> None:
        """Keeps the event. One that is kept already changes nothing."""

    def task(self, task_id: str) -> TaskStatus:
        """The task of that id, or NotFoundError."""

    def recent(self, kind: str | None = None, limit: int = RECENT_JOBS) -> tuple[TaskStatus, ...]:
        """The tasks that started or ended last, newest first."""

    def remove_before(self, time_ms: int) -> int:
        """Forgets tasks that nothing happened to since then. Returns how many."""
