"""The worker on a persistent cluster's main node.

`python -m sleeper.workers.persistent_bulk_import` runs the bulk imports of the instance in
SLEEPER_INSTANCE one at a time, so the node runs one process per parallel job. SIGTERM ends it and
returns the current message.
"""

import threading

from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.workers.json_logs import log_as_json
from sleeper.workers.worker import Worker, WorkerSettings, run_worker_process

_WAIT_SECONDS = 10.0


def main() -> None:
    """Runs the worker. Logs JSON to standard output."""
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
