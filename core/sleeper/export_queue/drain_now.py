"""Takes up and exports what a queue has, in this process."""

import time
from collections.abc import Callable
from functools import partial

from sleeper.export_queue.drain import DrainReport
from sleeper.export_queue.lookup import find_queue
from sleeper.export_queue.queue_drain import drain_queue
from sleeper.export_queue.take_up import take_up
from sleeper.instance import Instance

_ROUND_SECONDS = 2.0


def drain_now(
    instance: Instance,
    name: str,
    seconds_max: float | None = None,
    on_exports: Callable[[int], object] = lambda _: None,
) -> DrainReport:
    """Exports what a queue has now, for at most about the seconds.

    Calls failed buckets at once, and with a limit of seconds again and again, with backoff, while
    the receiver is unavailable. Exports remain if it is unavailable, another worker has them, the
    queue is paused or a call hung. `on_exports` receives the number of exports so far.
    NotFoundError if there is no such queue.
    """
    report, store = DrainReport(), instance.jobs.export_store()
    store.retry_now(name)
    ends_at = None if seconds_max is None else time.monotonic() + seconds_max
    is_second = False
    while True:
        left = _ROUND_SECONDS if ends_at is None else max(0.0, ends_at - time.monotonic())
        taken = take_up(instance, name, min(left, _ROUND_SECONDS))
        # All of it at the end, and before that what the limit of pending exports requires.
        seconds = (None if ends_at is None else left) if taken.is_complete else _ROUND_SECONDS
        count_more = partial(_count, on_exports, report.exports)
        drained = drain_queue(
            instance,
            name,
            seconds,
            on_exports=count_more,
            waits_for_receiver=ends_at is not None,
        )
        report.add(drained)
        if taken.problem is not None:
            report.problems.append(taken.problem)
        # Pending exports may leave until the end of the time.
        may_wait = ends_at is not None and store.counts(name).pending > 0
        is_stuck = taken.exports == 0 and drained.exports == 0 and not may_wait
        is_over = ends_at is not None and time.monotonic() >= ends_at
        # Taking up may commit transactions of its own, such as holds of a snapshot table.
        is_done = taken.is_complete and (is_second or not find_queue(instance, name).lag)
        if is_done or drained.hung or (is_stuck and not taken.is_complete) or is_over:
            return report
        is_second = taken.is_complete


def _count(on_exports: Callable[[int], object], before: int, count: int) -> None:
    on_exports(before + count)
