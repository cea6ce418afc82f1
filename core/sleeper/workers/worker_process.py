"""A process that is a worker: what it does on signals.

SIGTERM gives the job at hand back to its queue and ends the process. The interruption comes to
the job between two batches. A sort or merge may take long to the next one, and whoever sends
the signal kills after a while (ECS after 30 seconds): so if the job has not stopped by then,
the message is given back past it, and the process ends in its midst, as a killed one would.
"""

import logging
import os
import signal
import threading

from sleeper.errors import SleeperError
from sleeper.workers.worker import Worker

logger = logging.getLogger(__name__)
_SECONDS_TO_STOP = 15.0
_ENDED_IN_MIDST = 70


def run_worker_process(worker: Worker) -> None:
    """Runs the worker in this process's main thread, until its end."""
    ended = threading.Event()
    told, teller = os.pipe()
    os.set_blocking(teller, False)
    # The handler runs when the main thread next comes to Python code, which a job in native
    # code keeps it from. The system's own part of the handler wakes this thread at once.
    threading.Thread(target=_watch, args=(told, ended, worker), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: worker.give_back())
    signal.set_wakeup_fd(teller)
    try:
        worker.run()
    finally:
        ended.set()
        signal.set_wakeup_fd(-1)


def _watch(told: int, ended: threading.Event, worker: Worker) -> None:
    while signal.SIGTERM not in os.read(told, 1):
        pass
    if ended.wait(_SECONDS_TO_STOP):
        return
    logger.warning("the job did not stop within %d s: it is given back", _SECONDS_TO_STOP)
    try:
        worker.abandon()
    except SleeperError as error:
        logger.warning("%s", error)
    os._exit(_ENDED_IN_MIDST)
