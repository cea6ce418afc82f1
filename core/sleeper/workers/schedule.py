"""Scheduled work on AWS.

Starts the tasks that the messages of a queue need, and sends a message per table to the FIFO queue
of an operation.
"""

import logging
from dataclasses import dataclass

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.tracker import tasks_to_start
from sleeper.systems import load, queues

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartReport:
    """The numbers of messages (`waiting`, `in_flight`) and tasks (`running`, `started`)."""

    waiting: int
    in_flight: int
    running: int
    started: int
    failures: tuple[str, ...] = ()


def find_task_queue(kind: JobKind) -> QueueName:
    """Returns the queue whose jobs tasks of the kind run. InvalidRequestError if none exist."""
    queue = queues().get(kind.value)
    if queue is None or queue.tasks is None:
        raise InvalidRequestError(f"no tasks of kind {kind.value} exist")
    return QueueName(queue.name)


def start_tasks(instance: Instance, kind: JobKind) -> StartReport:
    """Starts a task per message in the queue of the kind, up to the maximum of running tasks.

    Concurrent calls may start too many tasks, which find no message and end.
    """
    counts = instance.jobs.queue(find_task_queue(kind)).counts()
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
    tasks = queues()[kind.value].tasks
    assert tasks is not None
    count = tasks_to_start(counts, running, instance.properties().get(load(tasks.count_max)))
    launch = launcher.start(count)
    for failure in launch.failures:
        logger.warning("could not start %s task: %s", kind.value, failure)
    return StartReport(counts.visible, counts.in_flight, running, launch.started, launch.failures)


_ONLINE_TABLES = (QueueName.COMPACTION_JOB_CREATION, QueueName.FIND_PARTITIONS_TO_SPLIT)
_ALL_TABLES = (
    QueueName.GARBAGE_COLLECTION,
    QueueName.ORPHAN_COLLECTION,
    QueueName.STATE_SNAPSHOTS,
    QueueName.TABLE_METRICS,
)
TABLE_OPERATIONS = _ONLINE_TABLES + _ALL_TABLES
_ROUNDS_WAITING_MAX = 10


def fan_out_tables(instance: Instance, operation: QueueName) -> int:
    """Sends the id of each table of the operation. Returns the number of messages.

    Sends nothing while messages of ten rounds are waiting, because the handlers do not keep up.
    """
    if operation not in TABLE_OPERATIONS:
        raise InvalidRequestError(f"queue {operation.value} is not an operation on tables")
    ids = [
        ref.id
        for ref in instance.tables.index.list()
        if ref.online or operation not in _ONLINE_TABLES
    ]
    queue = instance.jobs.queue(operation)
    waiting = queue.counts().visible
    if waiting >= _ROUNDS_WAITING_MAX * max(len(ids), 1):
        logger.warning("%d messages already wait in queue %s", waiting, operation.value)
        return 0
    queue.send_all(ids, groups=ids)
    return len(ids)
