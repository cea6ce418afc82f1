"""Tasks, which are processes that run jobs, in the task tracker, and their heartbeats.

If the process is killed, the next process of a local instance finds that the task's process is
gone and records its job as failed. A killed task on AWS cannot report its end, so each records a
heartbeat. A task without one for its queue's visibility timeout, after which its job returns to
the queue, is lost.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Self

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, TaskEvent, TaskStep, new_task_id
from sleeper.jobs.process import this_process
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import TaskStatus
from sleeper.properties.values import InstanceProperties
from sleeper.renewal import Renewal
from sleeper.runs.retry_policy import VISIBILITY_SECONDS

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TaskRecord:
    """A task in the task tracker, with the numbers of its jobs and their rows.

    `reason` states why it ended early.
    """

    instance: Instance
    kind: str
    id: str = field(default_factory=new_task_id)
    jobs: int = 0
    rows_read: int = 0
    rows_written: int = 0
    reason: str | None = None

    @contextmanager
    def recorded(self) -> Iterator[Self]:
        """Records the task's start, heartbeats and end."""
        started = TaskEvent(
            self.id, self.kind, TaskStep.STARTED, self.instance.clock(), process=this_process()
        )
        self.instance.jobs.tasks.record(started)
        try:
            with heartbeat(self.instance, self.id, self.kind):
                yield self
        finally:
            self.record_end()

    def add_job(self, rows_read: int, rows_written: int) -> None:
        """Adds a job that is done."""
        self.jobs += 1
        self.rows_read += rows_read
        self.rows_written += rows_written

    def record_end(self) -> None:
        """Records the end. Logs an error of the tracker."""
        ended = TaskEvent(
            self.id,
            self.kind,
            TaskStep.ENDED,
            self.instance.clock(),
            jobs=self.jobs,
            rows_read=self.rows_read,
            rows_written=self.rows_written,
            reason=self.reason,
        )
        try:
            self.instance.jobs.tasks.record(ended)
        except SleeperError:
            logger.warning("could not record task end", exc_info=True, extra={"task_id": self.id})


def record_task(instance: Instance, kind: JobKind) -> AbstractContextManager[TaskRecord]:
    """Returns a context that records this process as a task."""
    return TaskRecord(instance, kind.value).recorded()


PERIOD_SECONDS = 60.0
_PERIODS_MISSED_MIN = 3
_JOIN_SECONDS = 5.0
_QUEUES = {
    JobKind.INGEST.value: QueueName.INGEST,
    JobKind.COMPACTION.value: QueueName.COMPACTION,
}


def heartbeat(instance: Instance, task_id: str, kind: str) -> AbstractContextManager[object]:
    """Returns a context that records a heartbeat of the task every period."""
    if not instance.jobs.heartbeats:
        return nullcontext()

    def record() -> None:
        event = TaskEvent(task_id, kind, TaskStep.HEARTBEAT, instance.clock())
        instance.jobs.tasks.record(event)

    return Renewal(
        "heartbeat", record, PERIOD_SECONDS, join_seconds=_JOIN_SECONDS, extra={"task_id": task_id}
    )


def timeout_ms(properties: InstanceProperties, kind: str) -> int:
    """Returns the time without a heartbeat after which a task of the kind is lost."""
    queue = _QUEUES.get(kind, QueueName.BULK_EXPORT)
    visibility_seconds = properties.get(VISIBILITY_SECONDS[queue])
    return round(1000 * max(visibility_seconds, _PERIODS_MISSED_MIN * PERIOD_SECONDS))


def describe_loss(instance: Instance, now_ms: int, task: TaskStatus) -> str | None:
    """Returns the age of a lost task's last heartbeat as text; None for any other task."""
    if not instance.jobs.heartbeats or not task.running:
        return None
    age_ms = task.heartbeat_age_ms(now_ms)
    if age_ms <= timeout_ms(instance.properties(), task.kind):
        return None
    return f"last heartbeat {age_ms // 60_000:,} minutes ago"
