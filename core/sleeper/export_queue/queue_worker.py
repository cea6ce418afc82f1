"""Takes up and drains a queue in two threads of a process, so that neither waits for the other."""

import logging
import threading
import time
from collections.abc import Callable

from sleeper.errors import NotFoundError, SleeperError
from sleeper.export_queue.failures import backoff_seconds
from sleeper.export_queue.lookup import QueueWatch, find_queue
from sleeper.export_queue.queue_drain import QueueDrain
from sleeper.export_queue.take_up import take_up
from sleeper.instance import Instance

logger = logging.getLogger(__name__)

# Buckets that wait after a failure are looked for so often.
_LOOK_SECONDS = 1.0
_TAKE_UP_SECONDS_MAX = 10.0


class QueueWorker:
    """The threads of a queue. They end after `stop`, between two steps or calls.

    A call of the exporter that does not return ends the draining: `is_hung` is true from then on,
    and the process should end when its other work is done.
    """

    def __init__(self, instance: Instance, name: str, generation: int) -> None:
        self.generation = generation
        self.is_hung = False
        self._instance = instance
        self._name = name
        self._stopped = threading.Event()
        self._is_behind = threading.Event()
        self._has_stored = threading.Event()
        self._drain: QueueDrain | None = None
        self._problem = ""
        self._threads = [
            threading.Thread(target=target, name=f"{what} of {name}", daemon=True)
            for target, what in ((self._take_up, "taking up"), (self._drain_buckets, "draining"))
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Makes the threads end."""
        self._stopped.set()
        self._is_behind.set()
        self._has_stored.set()

    def join(self, seconds: float) -> bool:
        """Waits for the threads to end. Returns False if they have not in time."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def wake(self) -> None:
        """Takes up new transactions now."""
        self._is_behind.set()

    def seconds_of_oldest(self) -> float:
        """Returns how long the longest drain of a bucket has been running; 0 if none runs."""
        drain = self._drain
        return 0.0 if drain is None else drain.seconds_of_oldest()

    def _take_up(self) -> None:
        self._repeat("taking up", self._take_up_once)

    def _take_up_once(self) -> None:
        self._is_behind.wait()
        self._is_behind.clear()
        if self._stopped.is_set():
            return
        report = take_up(self._instance, self._name, _TAKE_UP_SECONDS_MAX)
        if report.exports:
            self._has_stored.set()
        if report.problem is not None:
            if report.problem != self._problem:
                logger.warning("export queue %s: %s", self._name, report.problem)
            self._stopped.wait(_LOOK_SECONDS)
        self._problem = report.problem or ""
        if not report.is_complete:
            self._is_behind.set()

    def _drain_buckets(self) -> None:
        try:
            self._repeat("draining", self._drain_once)
        finally:
            if self._drain is not None:
                self._drain.close()

    def _drain_once(self) -> None:
        self._has_stored.wait(_LOOK_SECONDS)
        self._has_stored.clear()
        if self._stopped.is_set() or self.is_hung:
            self._stopped.wait()
            return
        found = find_queue(self._instance, self._name)
        if self._drain is not None and not self._drain.is_of(found):
            self._drain.close()
            self._drain = None
        if self._drain is None:
            self._drain = QueueDrain(self._instance, found.definition, found.generation)
        watch = QueueWatch(found)
        report = self._drain.run(lambda: self._stopped.is_set() or watch.has_changed())
        self.is_hung = report.hung > 0

    def _repeat(self, what: str, step: Callable[[], None]) -> None:
        """Repeats a step until the worker stops, after an error later and later."""
        failures = 0
        while not self._stopped.is_set():
            try:
                step()
                failures = 0
            except NotFoundError as error:
                # The queue was deleted, so the worker is about to be stopped.
                logger.info("export queue %s: %s", self._name, error)
                self._stopped.wait(_LOOK_SECONDS)
            except Exception as error:
                if isinstance(error, SleeperError):
                    logger.warning("export queue %s: %s failed: %s", self._name, what, error)
                else:
                    logger.exception("export queue %s: %s failed", self._name, what)
                failures += 1
                self._stopped.wait(backoff_seconds(failures))
