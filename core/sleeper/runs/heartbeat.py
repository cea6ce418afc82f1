"""Word of tasks that nobody sees: on AWS one that is killed tells nobody.

So each says every minute that it is there. One that has not been heard of for as long as a
queue waits for word of a message, at whose end its job goes to another task, counts as lost. In a
folder it is the process that is looked for (`sleeper.local.dead_tasks`).
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, TaskEvent, TaskStep
from sleeper.jobs.status import TaskStatus
from sleeper.properties.engine import QUEUE_VISIBILITY_SECONDS
from sleeper.properties.instance import COMPACTION_VISIBILITY_SECONDS, INGEST_VISIBILITY_SECONDS
from sleeper.properties.values import InstanceProperties

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 60.0
_PERIODS_MISSED_MIN = 3
_JOIN_SECONDS = 5.0
_VISIBILITY = {
    JobKind.INGEST.value: INGEST_VISIBILITY_SECONDS,
    JobKind.COMPACTION.value: COMPACTION_VISIBILITY_SECONDS,
}


@contextmanager
def heard_of(instance: Instance, task_id: str, kind: str) -> Iterator[None]:
    """Tells the task tracker meanwhile, every so often, that the task is there."""
    if not instance.jobs.heartbeats:
        yield
        return
    done = threading.Event()
    telling = threading.Thread(
        target=_tell, args=(instance, task_id, kind, done), name="heartbeat", daemon=True
    )
    telling.start()
    try:
        yield
    finally:
        done.set()
        telling.join(_JOIN_SECONDS)


def silence_max_ms(properties: InstanceProperties, kind: str) -> int:
    """After how long without a word a task of that kind is lost."""
    visibility_seconds = properties.get(_VISIBILITY.get(kind, QUEUE_VISIBILITY_SECONDS))
    return round(1000 * max(visibility_seconds, _PERIODS_MISSED_MIN * PERIOD_SECONDS))


def silence_of_task(instance: Instance, now_ms: int, task: TaskStatus) -> str | None:
    """How long ago a task that is lost was last heard of; None of any other."""
    if not instance.jobs.heartbeats or not task.running:
        return None
    silent_ms = task.silent_ms(now_ms)
    if silent_ms <= silence_max_ms(instance.properties(), task.kind):
        return None
    return f"last heard of {silent_ms // 60_000:,} minutes ago"


def _tell(instance: Instance, task_id: str, kind: str, done: threading.Event) -> None:
    while not done.wait(PERIOD_SECONDS):
        try:
            instance.jobs.tasks.record(TaskEvent(task_id, kind, TaskStep.HEARD, instance.clock()))
        except SleeperError as error:
            logger.warning("the tracker was not told: %s", error, extra={"task_id": task_id})
