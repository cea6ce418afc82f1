"""Tasks, which are processes that run jobs, in the task tracker, and their heartbeats.

A killed task cannot report its end, so each records a heartbeat. Reports show a task whose process
is gone as lost, and the next process of a local instance that works in the background records its
job as failed, at the last heartbeat. On AWS, where processes are on other machines, a task without
a heartbeat for its queue's visibility timeout, after which its job returns to the queue, is lost.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Self

from sleeper.errors import NotFoundError, SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, TaskEvent, TaskStep, new_task_id
from sleeper.jobs.process import is_alive, this_process
from sleeper.jobs.status import TaskLoss, TaskStatus
from sleeper.properties.instance import QUEUE_VISIBILITY_SECONDS
from sleeper.properties.values import InstanceProperties
from sleeper.renewal import Renewal
from sleeper.systems import load, queues

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


def heartbeat(instance: Instance, task_id: str, kind: str) -> AbstractContextManager[object]:
    """Returns a context that records a heartbeat of the task every period."""

    def record() -> None:
        event = TaskEvent(task_id, kind, TaskStep.HEARTBEAT, instance.clock())
        instance.jobs.tasks.record(event)

    return Renewal(
        "heartbeat",
        record,
        lambda: PERIOD_SECONDS,
        join_seconds=_JOIN_SECONDS,
        extra={"task_id": task_id},
    )


def timeout_ms(properties: InstanceProperties, kind: str) -> int:
    """Returns the time without a heartbeat after which a task of the kind is lost."""
    queue = queues().get(kind)
    visibility_seconds: int = properties.get(
        QUEUE_VISIBILITY_SECONDS if queue is None else load(queue.visibility)
    )
    return round(1000 * max(visibility_seconds, _PERIODS_MISSED_MIN * PERIOD_SECONDS))


def find_loss(instance: Instance, now_ms: int, task: TaskStatus) -> TaskLoss | None:
    """Returns why a task is lost; None for any other task."""
    if not task.running:
        return None
    if not instance.jobs.has_remote_tasks:
        if task.process is None or is_alive(task.process):
            return None
        return TaskLoss(f"process {task.process.partition('@')[0]} died", task.last_seen_ms)
    age_ms = now_ms - task.last_seen_ms
    if age_ms <= timeout_ms(instance.properties(), task.kind):
        return None
    return TaskLoss(f"last heartbeat {age_ms // 60_000:,} minutes ago", task.last_seen_ms)


def find_loss_of_task(instance: Instance, now_ms: int, task_id: str) -> TaskLoss | None:
    """Returns why the task of this id is lost; None also if no such task is recorded."""
    try:
        task = instance.jobs.tasks.task(task_id)
    except NotFoundError:
        return None
    return find_loss(instance, now_ms, task)
