"""Tasks on AWS: processes that run the jobs of one queue, and log JSON to standard output.

A container runs jobs until its queue is empty. `python -m sleeper.workers.task`, on the main node
of a persistent cluster, runs bulk imports until SIGTERM, one at a time, so the node runs one
process per parallel job. Each opens the instance in SLEEPER_INSTANCE.
"""

import threading

from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.properties.instance import TASK_IDLE_STOP_SECONDS
from sleeper.retries import retry_as_job
from sleeper.storage.descriptors import raise_descriptor_limit
from sleeper.workers.json_logs import log_as_json
from sleeper.workers.schedule import find_task_queue
from sleeper.workers.worker import Worker, WorkerSettings, run_worker_process

# An idle task ends so long after SIGTERM at most: a receive is not cut off, because SQS would hide
# its message until the visibility timeout.
_WAIT_SECONDS_MAX = 2.0


def run_task(kind: JobKind) -> None:
    """Runs jobs of the kind until there is none."""
    queue = find_task_queue(kind)
    log_as_json(f"{kind.value}-task")
    retry_as_job()
    raise_descriptor_limit()
    instance = open_instance()
    idle_seconds = instance.properties().get(TASK_IDLE_STOP_SECONDS)
    wait_seconds = min(_WAIT_SECONDS_MAX, idle_seconds)
    _run(instance, WorkerSettings(kind.value, (queue,), wait_seconds, idle_seconds))


def run_bulk_imports() -> None:
    """Runs bulk imports of the persistent cluster until SIGTERM."""
    log_as_json("persistent-bulk-import")
    queues = (QueueName.BULK_IMPORT_PERSISTENT_EMR,)
    _run(open_instance(), WorkerSettings(JobKind.BULK_IMPORT.value, queues, _WAIT_SECONDS_MAX))


def _run(instance: Instance, settings: WorkerSettings) -> None:
    try:
        run_worker_process(Worker(instance, new_task_id(), threading.Event(), settings))
    finally:
        instance.close()


if __name__ == "__main__":
    run_bulk_imports()
