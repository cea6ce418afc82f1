"""A worker process of a local instance: `python -m sleeper.workers.local_worker FOLDER`."""

import contextlib
import logging
import os
import sys
import threading

from sleeper.errors import SleeperError
from sleeper.jobs.event import new_task_id
from sleeper.opening import open_instance
from sleeper.workers.child import start_child
from sleeper.workers.run_status import JOB_REPORTS, JobReport
from sleeper.workers.trace_exporter import exported_spans
from sleeper.workers.worker import Worker, run_worker_process

logger = logging.getLogger(__name__)


def main() -> None:
    """Runs the worker."""
    folder, stop = start_child("a worker process of a local instance")
    try:
        _run(folder, stop)
    except SleeperError as error:
        # Such as a full disk. The parent starts another worker.
        logger.error("worker ended: %s", error)
        sys.exit(1)


def _run(folder: str, stop: threading.Event) -> None:
    instance = open_instance(folder)
    try:
        with exported_spans():
            run_worker_process(Worker(instance, new_task_id(), stop, on_job=_write_report))
    finally:
        instance.close()


def _write_report(report: JobReport) -> None:
    """Writes one line to standard output, which the parent reads."""
    # If the parent died, the closed standard input ends this process.
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), f"{JOB_REPORTS.format(report)}\n".encode())


if __name__ == "__main__":
    main()
