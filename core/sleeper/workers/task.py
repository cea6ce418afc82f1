"""A task on AWS: a container that runs the jobs of one queue until the queue is empty."""

import threading

from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.properties.instance import TASK_IDLE_STOP_SECONDS
from sleeper.retries import retry_as_job
from sleeper.workers.json_logs import log_as_json
from sleeper.workers.worker import Worker, WorkerSettings, run_worker_process

_QUEUES = {
    JobKind.INGEST: QueueName.INGEST,
    JobKind.COMPACTION: QueueName.COMPACTION,
    JobKind.BULK_EXPORT: QueueName.BULK_EXPORT,
}
# Less than the time between SIGTERM and SIGKILL of ECS.
_WAIT_SECONDS_MAX = 10.0


def run_task(kind: JobKind) -> None:
    """Runs jobs of the instance in SLEEPER_INSTANCE. Logs JSON to standard output."""
    if kind not in _QUEUES:
        raise InvalidRequestError(f"no tasks of kind {kind.value} exist")
    log_as_json(f"{kind.value}-task")
    retry_as_job()
    instance = open_instance()
    idle_seconds = instance.properties().get(TASK_IDLE_STOP_SECONDS)
    wait_seconds = min(_WAIT_SECONDS_MAX, idle_seconds)
    settings = WorkerSettings(kind.value, (_QUEUES[kind],), wait_seconds, idle_seconds)
    try:
        run_worker_process(Worker(instance, new_task_id(), threading.Event(), settings))
    finally:
        instance.close()
