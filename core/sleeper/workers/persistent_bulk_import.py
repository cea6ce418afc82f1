"""The process on a persistent cluster's main node, which takes bulk imports from their queue.

`python -m sleeper.workers.persistent_bulk_import`, for the instance that SLEEPER_INSTANCE names,
runs one job after another; as many of it run beside each other as jobs may. It works until it gets
SIGTERM, which gives the message at hand back.
"""

import threading

from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.workers.json_logs import log_as_json
from sleeper.workers.worker import Worker, WorkerSettings
from sleeper.workers.worker_process import run_worker_process

_WAIT_SECONDS = 10.0


def main() -> None:
    """Logs are JSON, on standard output."""
    log_as_json("persistent-bulk-import")
    instance = open_instance()
    settings = WorkerSettings(
        JobKind.BULK_IMPORT.value, (QueueName.BULK_IMPORT_PERSISTENT_EMR,), _WAIT_SECONDS
    )
    try:
        run_worker_process(Worker(instance, new_task_id(), threading.Event(), settings))
    finally:
        instance.close()


if __name__ == "__main__":
    main()
