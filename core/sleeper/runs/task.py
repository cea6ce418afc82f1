"""Tasks of commands that run jobs in their own process, and heartbeats of tasks.

If the process is killed, the next process of a local instance finds that the task's process is
gone and records its job as failed. A killed task on AWS cannot report its end, so each records a
heartbeat. A task without one for its queue's visibility timeout, after which its job returns to
the queue, is lost.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

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


@contextmanager
def record_task(instance: Instance, kind: JobKind) -> Iterator[tuple[str, Callable[[int], None]]]:
    """Records a task. Yields its id and a function that adds a job with its number of rows."""
    task_id = new_task_id()
    rows_of_jobs: list[int] = []
    now = instance.clock()
    started = TaskEvent(task_id, kind.value, TaskStep.STARTED, now, process=this_process())
    instance.jobs.tasks.record(started)
    try:
        with heartbeat(instance, task_id, kind.value):
            yield task_id, rows_of_jobs.append
    finally:
        now, rows = instance.clock(), sum(rows_of_jobs)
        ended = TaskEvent(
            task_id,
            kind.value,
            TaskStep.ENDED,
            now,
            jobs=len(rows_of_jobs),
            rows_read=rows,
            rows_written=rows,
        )
        try:
            instance.jobs.tasks.record(ended)
        except SleeperError:
            logger.warning("could not record task end", exc_info=True, extra={"task_id": task_id})


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
