"""A task on AWS: a container that works on one queue, and ends when there is nothing to do."""

import threading

from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.properties.engine import TASK_IDLE_STOP_SECONDS
from sleeper.retries import retry_as_job
from sleeper.runs.retry import RETRY_SECONDS
from sleeper.workers.json_logs import log_as_json
from sleeper.workers.worker import Worker, WorkerSettings
from sleeper.workers.worker_process import run_worker_process

_QUEUES = {
    JobKind.INGEST: QueueName.INGEST,
    JobKind.COMPACTION: QueueName.COMPACTION,
    JobKind.BULK_EXPORT: QueueName.BULK_EXPORT,
}
# Less than the time that ECS leaves a task between SIGTERM and SIGKILL.
_WAIT_SECONDS_MAX = 10.0


def run_task(kind: JobKind) -> None:
    """Works for the instance that SLEEPER_INSTANCE names. Logs are JSON, on standard output."""
    if kind not in _QUEUES:
        raise InvalidRequestError(f"there are no tasks of kind {kind.value}")
    log_as_json(f"{kind.value}-task")
    retry_as_job()
    instance = open_instance()
    idle_seconds = instance.properties().get(TASK_IDLE_STOP_SECONDS)
    settings = WorkerSettings(
        kind.value,
        (_QUEUES[kind],),
        min(_WAIT_SECONDS_MAX, idle_seconds),
        idle_seconds,
        RETRY_SECONDS,
    )
    try:
        run_worker_process(Worker(instance, new_task_id(), threading.Event(), settings))
    finally:
        instance.close()
