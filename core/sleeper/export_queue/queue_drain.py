"""Drains the buckets of a queue with a few threads, each with an exporter of its own."""

import itertools
import logging
import math
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field

from sleeper.errors import NotFoundError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.drain import DrainReport, drain_buckets, may_call
from sleeper.export_queue.exporters import drains_together
from sleeper.export_queue.failures import ends_by_itself
from sleeper.export_queue.registration import OpenQueue
from sleeper.export_queue.store import BucketStatus, open_export_store
from sleeper.export_queue.timed_exporter import TimedExporter
from sleeper.instance import Instance

logger = logging.getLogger(__name__)

PARALLEL_DEFAULT = 4
# How often the buckets are listed while calls run or failed buckets wait.
_LIST_SECONDS = 0.2
_DEATH_SECONDS = 0.3
_DEATH_SECONDS_MAX = 2.0
# The size of the items of buckets that are drained together.
_TOGETHER_BYTES_MAX = 8 * 1024**2

Until = Callable[[], bool]
OnExports = Callable[[int], object]


@dataclass(slots=True)
class _Run:
    """A run: buckets to drain, and buckets that threads drain."""

    report: DrainReport
    on_exports: OnExports
    due: deque[BucketStatus] = field(default_factory=deque)
    running: dict[Future[DrainReport], list[BucketStatus]] = field(default_factory=dict)
    listed_at: float = -math.inf

    def may_list(self) -> bool:
        """Returns whether to list the buckets: at once if no drain runs, else now and then."""
        now = time.monotonic()
        if self.running and now - self.listed_at < _LIST_SECONDS:
            return False
        self.listed_at = now
        return True


class QueueDrain:
    """The threads and exporters of a queue, which are kept between runs.

    `buckets` are all by default. A run that waits ends when only buckets are left whose receiver is
    unavailable, unless it `waits_for_receiver`.
    """

    def __init__(
        self,
        instance: Instance,
        queue: ExportQueue,
        generation: int,
        parallel: int = PARALLEL_DEFAULT,
        buckets: Collection[int] | None = None,
        waits_for_receiver: bool = False,
    ) -> None:
        self.queue = queue
        self.generation = generation
        self._instance = instance
        self._store = open_export_store(instance)
        self._parallel = parallel
        self._is_together = drains_together(queue)
        self._buckets = buckets
        self._waits_for_receiver = waits_for_receiver
        self._threads = ThreadPoolExecutor(parallel, f"drain of {queue.name}")
        self._lock = threading.Lock()
        self._idle: list[TimedExporter] = []
        self._is_failing = False
        self._numbers = itertools.count()
        self._starts: dict[int, float] = {}

    def is_of(self, open_queue: OpenQueue) -> bool:
        """Returns whether it drains the queue with its present definition."""
        return (self.queue, self.generation) == (open_queue.definition, open_queue.generation)

    def close(self) -> None:
        """Closes the exporters. Threads end after their current call."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            exporters, self._idle = self._idle, []
        for exporter in exporters:
            exporter.close()

    def seconds_of_oldest(self) -> float:
        """Returns how long the longest drain of a bucket has been running; 0 if none runs."""
        with self._lock:
            started = min(self._starts.values(), default=None)
        return 0.0 if started is None else time.monotonic() - started

    def run(
        self, until: Until, waits: bool = False, on_exports: OnExports = lambda _: None
    ) -> DrainReport:
        """Drains buckets until none is due, a call hung, or `until` is true.

        `waits` goes on until no bucket has exports, see the class. `on_exports` receives the number
        of exports so far.
        """
        run = _Run(DrainReport(), on_exports)
        try:
            while self._step(run, until, waits):
                pass
        except NotFoundError:
            # Its drains end too.
            logger.info("export queue %s was deleted", self.queue.name)
        return run.report

    def _step(self, run: "_Run", until: Until, waits: bool) -> bool:
        """Starts drains of due buckets, and waits for one to end. False if the run has ended."""
        must_stop = run.report.hung > 0 or until()
        if not run.due and not must_stop and run.may_list():
            running = {each.bucket for group in run.running.values() for each in group}
            run.due.extend(self._due(running))
        while run.due and not must_stop and self._may_start(run):
            group = self._take_group(run.due)
            future = self._threads.submit(self._drain, group, until)
            run.running[future] = group
        if run.running:
            ended, _ = wait(run.running, _LIST_SECONDS, FIRST_COMPLETED)
            for future in ended:
                del run.running[future]
                if not waits:
                    self._log_failure(future.result())
                run.report.add(future.result())
            run.on_exports(run.report.exports)
            return True
        if must_stop or not (waits and self._has_unfinished()):
            return False
        time.sleep(_LIST_SECONDS)
        return True

    def _may_start(self, run: "_Run") -> bool:
        """Returns whether to start the next drain.

        A bucket with which a worker died is drained alone, because the next death would be
        counted for every bucket that is being drained.
        """
        running = [each for group in run.running.values() for each in group]
        if run.due[0].deaths or any(each.deaths for each in running):
            return not running
        return len(run.running) < self._parallel

    def _log_failure(self, report: DrainReport) -> None:
        """Warns of the first failed call after a success, not of each bucket.

        The caller of a run that waits shows the problems itself.
        """
        if report.failed and not self._is_failing:
            logger.warning("%s", report.problems[-1])
        if report.calls:
            self._is_failing = report.failed > 0

    def _take_group(self, due: deque[BucketStatus]) -> list[BucketStatus]:
        """Takes the next buckets to drain together: one, unless the exporter combines them."""
        group = [due.popleft()]
        size = group[0].bytes
        while (
            self._is_together
            and due
            and not (_is_suspect(group[-1]) or _is_suspect(due[0]))
            and size + due[0].bytes <= _TOGETHER_BYTES_MAX
        ):
            group.append(due.popleft())
            size += group[-1].bytes
        return group

    def _due(self, running: Collection[int]) -> list[BucketStatus]:
        """Returns the buckets that can be drained now; none of a paused queue."""
        if not may_call(self._store, self.queue, self.generation):
            return []
        now_ms = self._instance.clock()
        statuses = [
            each
            for each in self._statuses()
            if each.due_ms <= now_ms and not each.claimed_until_ms and each.bucket not in running
        ]
        return sorted(statuses, key=lambda each: each.deaths)

    def _has_unfinished(self) -> bool:
        if not may_call(self._store, self.queue, self.generation):
            return False
        return any(self._waits_for_receiver or ends_by_itself(each) for each in self._statuses())

    def _statuses(self) -> list[BucketStatus]:
        statuses = self._store.buckets(self.queue.name)
        return [each for each in statuses if self._buckets is None or each.bucket in self._buckets]

    def _drain(self, group: list[BucketStatus], until: Until) -> DrainReport:
        owner = secrets.token_hex(12)
        # So that it does not die again and again with a bucket of another queue.
        time.sleep(random.uniform(0, min(group[0].deaths * _DEATH_SECONDS, _DEATH_SECONDS_MAX)))
        with self._exporter() as exporter:
            return drain_buckets(
                self._instance, self.queue, self.generation, group, exporter, owner, until
            )

    @contextmanager
    def _exporter(self) -> Iterator[TimedExporter]:
        """Yields an exporter that no other thread uses.

        A bucket may have two drains: one whose run has failed, and whose claim has ended, and the
        next one.
        """
        with self._lock:
            exporter = self._idle.pop() if self._idle else None
            number = next(self._numbers)
            self._starts[number] = time.monotonic()
        if exporter is None:
            exporter = TimedExporter(self._instance, self.queue)
        try:
            yield exporter
        finally:
            with self._lock:
                del self._starts[number]
                if not exporter.is_hung:
                    self._idle.append(exporter)


def _is_suspect(status: BucketStatus) -> bool:
    """Returns whether the exports of the bucket may make a call fail, or a worker die."""
    return status.failures > 0 or status.deaths > 1
