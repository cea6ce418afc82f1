"""Starts tasks as the queue of their kind needs them."""

import logging
from dataclasses import dataclass

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.task_launcher import tasks_to_start
from sleeper.properties.bulk_import import EXPORT_TASKS_MAX
from sleeper.properties.declaration import Property
from sleeper.properties.instance import COMPACTION_TASKS_MAX, INGEST_TASKS_MAX

logger = logging.getLogger(__name__)

_KINDS: dict[JobKind, tuple[QueueName, Property[int]]] = {
    JobKind.INGEST: (QueueName.INGEST, INGEST_TASKS_MAX),
    JobKind.COMPACTION: (QueueName.COMPACTION, COMPACTION_TASKS_MAX),
    JobKind.BULK_EXPORT: (QueueName.BULK_EXPORT, EXPORT_TASKS_MAX),
}


@dataclass(frozen=True, slots=True)
class StartReport:
    """What was found, and done: `waiting` and `in_flight` are messages, the others tasks."""

    waiting: int
    in_flight: int
    running: int
    started: int
    failures: tuple[str, ...] = ()


def start_tasks(instance: Instance, kind: JobKind) -> StartReport:
    """Starts as many tasks of the kind as its queue's messages need, up to the maximum.

    Two that run at once may start too many between them; these find nothing to do and end.
    """
    if kind not in _KINDS:
        raise InvalidRequestError(f"there are no tasks of kind {kind.value}")
    queue_name, tasks_max = _KINDS[kind]
    counts = instance.jobs.queue(queue_name).counts()
    if not counts.visible and not counts.in_flight:
        return StartReport(0, 0, 0, 0)
    if instance.jobs.launcher is None:
        raise InvalidRequestError(
            f"a local instance starts no {kind.value} tasks: `sleeper run` has its own workers"
        )
    launcher = instance.jobs.launcher(kind)
    running = launcher.running()
    if not counts.visible:
        return StartReport(0, counts.in_flight, running, 0)
    wanted = tasks_to_start(counts, running, instance.properties().get(tasks_max))
    launch = launcher.start(wanted)
    for failure in launch.failures:
        logger.warning("%s tasks were not started: %s", kind.value, failure)
    return StartReport(counts.visible, counts.in_flight, running, launch.started, launch.failures)
