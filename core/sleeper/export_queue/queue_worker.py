"""Captures and drains a queue: what it has now, or in two threads that end with the process."""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from sleeper.errors import NotFoundError, SleeperError
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.drain import DrainReport
from sleeper.export_queue.failures import backoff_seconds
from sleeper.export_queue.queue_drain import QueueDrain
from sleeper.export_queue.registration import QueueWatch, find_queue
from sleeper.export_queue.store import open_export_store
from sleeper.instance import Instance

logger = logging.getLogger(__name__)

# Buckets that wait after a failure are looked for so often.
_LOOK_SECONDS = 1.0
_CAPTURE_SECONDS_MAX = 10.0
_ROUND_SECONDS = 2.0


class QueueWorker:
    """Two threads of a queue, of which neither waits for the other.

    They end after `stop`, between two steps or calls.

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
            for target, what in ((self._capture, "taking up"), (self._drain_buckets, "draining"))
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
        """Captures new transactions now."""
        self._is_behind.set()

    def seconds_of_oldest(self) -> float:
        """Returns how long the longest drain of a bucket has been running; 0 if none runs."""
        drain = self._drain
        return 0.0 if drain is None else drain.seconds_of_oldest()

    def _capture(self) -> None:
        self._repeat("taking up", self._capture_once)

    def _capture_once(self) -> None:
        self._is_behind.wait()
        self._is_behind.clear()
        if self._stopped.is_set():
            return
        report = capture_exports(self._instance, self._name, _CAPTURE_SECONDS_MAX)
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
        open_queue = find_queue(self._instance, self._name)
        if self._drain is not None and not self._drain.is_of(open_queue):
            self._drain.close()
            self._drain = None
        if self._drain is None:
            self._drain = QueueDrain(self._instance, open_queue.definition, open_queue.generation)
        watch = QueueWatch(open_queue)
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


def drain_now(
    instance: Instance,
    name: str,
    seconds_max: float | None = None,
    on_exports: Callable[[int], object] = lambda _: None,
) -> DrainReport:
    """Captures and exports what a queue has now, for at most about the seconds.

    Calls failed buckets at once, and with a limit of seconds again and again, with backoff, while
    the receiver is unavailable. Waits for refused exports until they are dead letters. Exports
    remain if the receiver is unavailable, another worker has them, the queue is paused or a call
    hung. `on_exports` receives the number of exports so far.
    NotFoundError if there is no such queue.
    """
    report, store = DrainReport(), open_export_store(instance)
    store.retry_now(name)
    ends_at = math.inf if seconds_max is None else time.monotonic() + seconds_max
    is_second = False
    while True:
        left = max(0.0, ends_at - time.monotonic())
        captured = capture_exports(instance, name, min(left, _ROUND_SECONDS))
        # All of it at the end, and before that what the limit of pending exports requires.
        seconds = left if captured.is_complete else _ROUND_SECONDS
        count_more = partial(_count, on_exports, report.exports)
        drained = _drain_queue(instance, name, seconds, count_more, seconds_max is not None)
        report.add(drained)
        if captured.problem is not None:
            report.problems.append(captured.problem)
        # Pending exports may leave until the end of the time.
        may_wait = seconds_max is not None and store.counts(name).pending > 0
        is_stuck = captured.exports == 0 and drained.exports == 0 and not may_wait
        # Transactions may have been committed while the exports were drained.
        is_done = captured.is_complete and (is_second or not find_queue(instance, name).is_behind)
        is_over = (is_stuck and not captured.is_complete) or time.monotonic() >= ends_at
        if is_done or drained.hung or is_over:
            return report
        is_second = captured.is_complete


def _count(on_exports: Callable[[int], object], before: int, count: int) -> None:
    on_exports(before + count)


def _drain_queue(
    instance: Instance,
    name: str,
    seconds: float,
    on_exports: Callable[[int], object],
    waits_for_receiver: bool,
) -> DrainReport:
    """Drains a queue until it is empty, the time is over, or a call hung."""
    queue, deadline = find_queue(instance, name), time.monotonic() + seconds
    watch = QueueWatch(queue)
    drain = QueueDrain(
        instance, queue.definition, queue.generation, waits_for_receiver=waits_for_receiver
    )
    with closing(drain):
        return drain.run(
            lambda: watch.has_changed() or time.monotonic() > deadline, True, on_exports
        )
