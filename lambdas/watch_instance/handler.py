"""Watches the instance for what does not happen."""

import json
import os
from collections import Counter
from datetime import UTC, datetime

from sleeper.aws.polling import switch_sources
from sleeper.aws.watch import (
    WatchedResources,
    count_queues,
    watch_functions,
    watch_problems,
    watch_queues,
)
from sleeper.instance import Instance
from sleeper.reports.metric import INSTANCE_KIND
from sleeper.workers.lambda_function import Event, lambda_function, put_task_metrics


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """Publishes metrics of queues, and once an hour those of functions and problems.

    Then it switches the polls of queues on demand. SLEEPER_WATCHED describes the functions and
    tables, SLEEPER_WATCH_MINUTES is the period, and SLEEPER_SOURCES has the queues on demand.
    """
    now_ms = instance.clock()
    queues = count_queues(instance)
    counts = Counter(watch_queues(instance, queues, now_ms))
    minute = datetime.fromtimestamp(now_ms / 1000, UTC).minute
    if minute < int(os.environ["SLEEPER_WATCH_MINUTES"]):
        resources = WatchedResources(**json.loads(os.environ["SLEEPER_WATCHED"]))
        counts.update(watch_functions(resources, now_ms))
        counts.update(watch_problems(instance))
    found = {name: count for name, count in counts.items() if count}
    put_task_metrics(instance, INSTANCE_KIND, found)
    switch_sources(json.loads(os.environ["SLEEPER_SOURCES"]), queues)
    return {str(name): count for name, count in found.items()}
