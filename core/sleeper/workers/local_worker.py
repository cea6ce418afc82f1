"""A worker process of a local instance: `python -m sleeper.workers.local_worker FOLDER`.

The process that started it holds the other end of its standard input: when that closes,
because the other stopped or was killed, the worker ends after the job at hand. Workers are
fresh processes, never forks.
"""

import argparse
import logging
import signal
import sys
import threading

from sleeper.jobs.event import new_task_id
from sleeper.opening import open_instance
from sleeper.retries import retry_as_job
from sleeper.workers.worker import Worker
from sleeper.workers.worker_process import run_worker_process


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="a worker process of a local instance")
    parser.add_argument("folder")
    arguments = parser.parse_args()
    retry_as_job()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    threading.Thread(target=_stop_when_input_closes, args=(stop,), daemon=True).start()
    # Ctrl-C at the terminal reaches the whole group: the starter decides what it means.
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
