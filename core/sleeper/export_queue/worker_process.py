"""The process that exports for a local instance: `python -m sleeper.export_queue.worker_process`.

Its argument is the folder of the instance. It finds new queues and new transactions by polling. It
keeps nothing in memory that matters, so it can be killed at any time.
"""

import logging
import os
import threading
import time

from sleeper.errors import SleeperError
from sleeper.export_queue.queue_worker import QueueWorker
from sleeper.export_queue.store import RegisteredQueue, open_export_store
from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.tables import TableId
from sleeper.workers.child import start_child

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_UNAVAILABLE_WAIT_SECONDS = 2.0
_STOP_SECONDS_MAX = 3.5
# After a call that did not return, the process ends when all other calls are as short, or at last.
_SHORT_SECONDS = 1.0
_END_SECONDS_MAX = 60.0
_HUNG_STATUS = 75


class ExportWorker:
    """Captures and drains all queues of an instance until it is stopped."""

    def __init__(self, instance: Instance, stop: threading.Event) -> None:
        self._instance = instance
        self._stop = stop
        self._workers: dict[str, QueueWorker] = {}
        self._hung_at: float | None = None

    def run(self) -> bool:
        """Runs until it is stopped or a call hangs. Returns False if threads still run."""
        while not self._stop.is_set() and not self._must_end():
            pause = _POLL_SECONDS
            try:
                self._look()
            except SleeperError as error:
                logger.warning("waiting for the instance: %s", error)
                pause = _UNAVAILABLE_WAIT_SECONDS
            self._stop.wait(pause)
        for worker in self._workers.values():
            worker.stop()
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        ended = [
            worker.join(max(0.0, deadline - time.monotonic()))
            for worker in self._workers.values()
            if not worker.is_hung
        ]
        return self._hung_at is None and all(ended)

    def _look(self) -> None:
        """Starts workers of new queues, stops those of deleted ones, and wakes those behind."""
        queues = {
            queue.name: queue
            for queue in open_export_store(self._instance).list()
            if queue.generation
        }
        for name, worker in list(self._workers.items()):
            if name not in queues or queues[name].generation != worker.generation:
                worker.stop()
                del self._workers[name]
        numbers: dict[str, int] = {}
        for queue in queues.values():
            if queue.name not in self._workers:
                self._workers[queue.name] = QueueWorker(
                    self._instance, queue.name, queue.generation
                )
                self._workers[queue.name].start()
            if self._newest(queue, numbers) > queue.position.number:
                self._workers[queue.name].wake()

    def _newest(self, queue: RegisteredQueue, numbers: dict[str, int]) -> int:
        """Returns the newest transaction of the queue's table, which is read once."""
        if queue.table_id not in numbers:
            with self._instance.tables.state(TableId(queue.table_id)).reading() as state:
                numbers[queue.table_id] = state.number
        return numbers[queue.table_id]

    def _must_end(self) -> bool:
        """Returns whether a call hung, and no other is interrupted by the end of the process."""
        if not any(worker.is_hung for worker in self._workers.values()):
            return False
        now = time.monotonic()
        self._hung_at = self._hung_at or now
        others = [worker for worker in self._workers.values() if not worker.is_hung]
        longest = max((worker.seconds_of_oldest() for worker in others), default=0.0)
        return longest < _SHORT_SECONDS or now - self._hung_at > _END_SECONDS_MAX


def main() -> None:
    """Runs the process."""
    folder, stop = start_child("the exporting process of a local instance")
    instance = open_instance(folder)
    if not ExportWorker(instance, stop).run():
        # Threads cannot be ended, and the next process exports their batches again.
        logging.shutdown()
        os._exit(_HUNG_STATUS)
    instance.close()


if __name__ == "__main__":
    main()
