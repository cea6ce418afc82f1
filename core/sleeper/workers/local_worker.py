"""A worker process of a local instance: `python -m sleeper.workers.local_worker FOLDER`.

The parent process holds the write end of its standard input. When the parent closes it or dies,
the worker ends after its current job. Workers are fresh processes, never forks.
"""

import argparse
import logging
import signal
import sys
import threading

from sleeper.jobs.event import new_task_id
from sleeper.opening import open_instance
from sleeper.retries import retry_as_job
from sleeper.workers.worker import Worker, run_worker_process


def main() -> None:
    """Runs the worker."""
    parser = argparse.ArgumentParser(description="a worker process of a local instance")
    parser.add_argument("folder")
    arguments = parser.parse_args()
    retry_as_job()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    threading.Thread(target=_stop_when_input_closes, args=(stop,), daemon=True).start()
    # Ctrl-C reaches the whole process group, and the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    instance = open_instance(arguments.folder)
    try:
        run_worker_process(Worker(instance, new_task_id(), stop))
    finally:
        instance.close()


def _stop_when_input_closes(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(1):
        pass
    stop.set()


if __name__ == "__main__":
    main()
