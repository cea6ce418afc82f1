"""Watches the instance for what does not happen."""

import json
import os
from collections import Counter
from datetime import UTC, datetime

from sleeper.aws.polling import switch_sources
from sleeper.aws.watch import (
    WatchedResources,
    WatchParts,
    count_queues,
    watch_functions,
    watch_problems,
    watch_queues,
)
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueCounts, QueueName
from sleeper.reports.metric import INSTANCE_KIND
from sleeper.workers.lambda_function import Event, lambda_function, put_task_metrics


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """Switches the polls of queues on demand, and publishes metrics.

    Those of queues each time, and those of functions and problems once an hour. A part that fails
    does not prevent the others, and the function fails after them. SLEEPER_WATCHED describes the
    functions and tables, SLEEPER_WATCH_MINUTES is the period, and SLEEPER_SOURCES has the queues on
    demand.
    """
    now_ms = instance.clock()
    queues: dict[QueueName, QueueCounts] = {}
    counts: Counter[str] = Counter()
    parts = WatchParts()
    with parts.run("polls of queues"):
        queues = count_queues(instance)
        switch_sources(json.loads(os.environ["SLEEPER_SOURCES"]), queues)
    with parts.run("metrics of queues"):
        counts.update(watch_queues(instance, queues, now_ms))
    minute = datetime.fromtimestamp(now_ms / 1000, UTC).minute
    if minute < int(os.environ["SLEEPER_WATCH_MINUTES"]):
        with parts.run("metrics of functions"):
            resources = WatchedResources(**json.loads(os.environ["SLEEPER_WATCHED"]))
            counts.update(watch_functions(resources, now_ms))
        with parts.run("problems"):
            counts.update(watch_problems(instance))
    found = {name: count for name, count in counts.items() if count}
    put_task_metrics(instance, INSTANCE_KIND, found)
    parts.check()
    return {str(name): count for name, count in found.items()}
