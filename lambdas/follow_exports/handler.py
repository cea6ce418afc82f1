"""Captures exports of queues after commits to their tables, and each minute those of all queues."""

import functools

from sleeper.export_queue.follow import (
    RecentQueues,
    follow_all,
    follow_commits,
    gather_export_metrics,
)
from sleeper.export_queue.metrics import KIND
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, changed_tables, lambda_function, put_task_metrics


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:
    """Handles events of the log table's stream, or of the schedule.

    An event of the stream is not tried again, because the schedule finds what it missed. Returns
    the numbers of exports captured, of messages sent to drain buckets, and of problems.
    """
    if "Records" in event:
        names = _recent_queues(instance.where).find(instance, changed_tables(event))
        report = follow_commits(instance, names)
    else:
        report = follow_all(instance)
        put_task_metrics(instance, KIND, gather_export_metrics(instance, report))
    return {"exports": report.exports, "sent": report.sent, "problems": len(report.problems)}


@functools.cache
def _recent_queues(where: str) -> RecentQueues:  # noqa: ARG001 (the key of the cache)
    return RecentQueues()
