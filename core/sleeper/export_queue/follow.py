"""Captures exports of queues in a function on AWS, and sends messages to drain their buckets.

A stream of the log table starts the function soon after each commit. A schedule starts it each
minute, for events that were lost, for long work, and for buckets that wait after a failure.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sleeper.errors import NotFoundError, SleeperError, StateMovedOnError
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.messages import send_due_buckets
from sleeper.export_queue.metrics import ExportMetric
from sleeper.export_queue.registration import finish_interrupted_deletion
from sleeper.export_queue.store import RegisteredQueue, open_export_store
from sleeper.instance import Instance
from sleeper.renewal import Renewal
from sleeper.runs.remaining_time import seconds_left

logger = logging.getLogger(__name__)

# Events of other tables wait meanwhile. The schedule continues.
_EVENT_SECONDS_MAX = 30.0
# The exporters begin after this time of a long work.
_STEP_SECONDS = 10.0
# A step, and a part of a large transaction, may take longer than planned.
_END_SECONDS = 60.0
_CLAIM_SECONDS = 60.0
_CAPTURE = -1
"""The number of the bucket whose claim gives the right to capture."""
_PARALLEL = 4
_LIST_SECONDS = 2.0
_DAY_MINUTES = 24 * 60


@dataclass(slots=True)
class FollowReport:
    """What a function did: `exports` were captured, and messages `sent` to drain buckets.

    `problems` are errors, and reasons why exports were not captured.
    """

    exports: int = 0
    sent: int = 0
    problems: list[str] = field(default_factory=list)


class RecentQueues:
    """The queues of tables, listed at most every two seconds: most commits need no request.

    The schedule finds the first commits of a new queue.
    """

    def __init__(self) -> None:
        self._listed_at = -_LIST_SECONDS
        self._queues: Sequence[RegisteredQueue] = ()

    def find(self, instance: Instance, table_ids: Collection[str]) -> list[str]:
        """Returns the names of the queues of these tables."""
        if time.monotonic() - self._listed_at >= _LIST_SECONDS:
            self._queues = open_export_store(instance).list()
            self._listed_at = time.monotonic()
        return [each.name for each in self._queues if each.table_id in table_ids]


def follow_commits(instance: Instance, names: Collection[str]) -> FollowReport:
    """Captures new exports of queues for at most half a minute, and sends their buckets."""
    ends_at = time.monotonic() + min(_EVENT_SECONDS_MAX, seconds_left() - _END_SECONDS)
    return _in_parallel(names, lambda name, report: _capture(instance, name, ends_at, report))


def follow_all(instance: Instance) -> FollowReport:
    """Captures the exports of all queues, until nothing is left or the function must end.

    Sends all buckets that are due, and once a day deletes what died processes left.
    """
    ends_at = time.monotonic() + seconds_left() - _END_SECONDS
    queues = open_export_store(instance).list()

    def follow(name: str, report: FollowReport) -> None:
        try:
            _capture(instance, name, ends_at, report)
        except NotFoundError:
            # It was deleted, perhaps by a process that died.
            finish_interrupted_deletion(instance, name)
            raise
        report.sent += send_due_buckets(instance, name)

    report = _in_parallel([each.name for each in queues], follow)
    if instance.clock() // 60_000 % _DAY_MINUTES == 0:
        _sweep(instance, queues)
    return report


def gather_export_metrics(instance: Instance, report: FollowReport) -> dict[str, int]:
    """Returns the metrics of all queues, after a schedule's run."""
    store, now_ms = open_export_store(instance), instance.clock()
    pending = dead = oldest_ms = 0
    queues = store.list()
    for queue in queues:
        try:
            counts, buckets = store.counts(queue.name), store.buckets(queue.name)
        except NotFoundError:
            continue  # deleted meanwhile
        pending, dead = pending + counts.pending, dead + counts.dead
        oldest_ms = max(oldest_ms, *(now_ms - each.oldest_ms for each in buckets), 0)
    if not queues:
        return {}
    return {
        ExportMetric.PENDING: pending,
        ExportMetric.DEAD: dead,
        ExportMetric.OLDEST_SECONDS: oldest_ms // 1000,
        ExportMetric.PROBLEMS: len(report.problems),
    }


def _in_parallel(
    names: Collection[str], follow: Callable[[str, FollowReport], None]
) -> FollowReport:
    def run(name: str) -> FollowReport:
        report = FollowReport()
        try:
            follow(name, report)
        except NotFoundError as error:
            logger.info("%s", error)  # deleted meanwhile
        except Exception as error:
            logger.exception("export queue %s: could not take up exports", name)
            report.problems.append(f"export queue {name!r}: {error}")
        return report

    total = FollowReport()
    with ThreadPoolExecutor(_PARALLEL) as threads:
        for each in threads.map(run, names):
            total.exports += each.exports
            total.sent += each.sent
            total.problems += each.problems
    return total


def _capture(instance: Instance, name: str, ends_at: float, report: FollowReport) -> None:
    """Captures until nothing is left, unless another function does so."""
    store, owner = open_export_store(instance), secrets.token_hex(12)

    def claim() -> None:
        if not store.claim(name, _CAPTURE, owner, _CLAIM_SECONDS):
            raise StateMovedOnError(f"export queue {name!r}: another function takes up exports")

    try:
        claim()
    except StateMovedOnError as error:
        logger.info("%s", error)
        return
    try:
        renewal = f"renewal of the claim to take up exports of queue {name}"
        with Renewal(renewal, claim, _CLAIM_SECONDS / 3, ends_on=StateMovedOnError):
            while _capture_step(instance, name, ends_at, report):
                pass
    finally:
        store.release(name, _CAPTURE, owner)


def _capture_step(instance: Instance, name: str, ends_at: float, report: FollowReport) -> bool:
    """Sends what it captured. Returns whether to try again: there may be more, and time."""
    seconds = min(_STEP_SECONDS, ends_at - time.monotonic())
    if seconds <= 0:
        return False
    step = capture_exports(instance, name, seconds)
    if step.exports:
        report.exports += step.exports
        report.sent += send_due_buckets(instance, name)
    if step.problem is not None:
        logger.warning("%s", step.problem)
        report.problems.append(step.problem)
    return step.problem is None and (step.exports > 0 or not step.is_complete)


def _sweep(instance: Instance, queues: Iterable[RegisteredQueue]) -> None:
    for queue in queues:
        try:
            swept = open_export_store(instance).sweep(queue.name)
            logger.info("export queue %s: swept %d objects", queue.name, swept)
        except SleeperError:
            logger.warning("export queue %s: could not sweep", queue.name, exc_info=True)
