"""Starts tasks of a kind for the messages of its queue."""

import os

from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.reports.metric import INSTANCE_KIND, Metric
from sleeper.workers.lambda_function import Event, lambda_function, put_task_metrics
from sleeper.workers.schedule import start_tasks


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """Starts tasks of the kind in SLEEPER_TASK_KIND, such as `ingest`."""
    kind = JobKind(os.environ["SLEEPER_TASK_KIND"])
    done = start_tasks(instance, kind)
    if done.waiting or done.in_flight:
        running = done.running + done.started
        put_task_metrics(
            instance,
            kind.value,
            {Metric.TASKS_RUNNING: running, Metric.TASKS_STARTED: done.started},
        )
    if done.failures:
        failed: dict[str, int] = {Metric.TASK_STARTS_FAILED: len(done.failures)}
        put_task_metrics(instance, INSTANCE_KIND, failed)
    return {"running": done.running, "started": done.started, "failures": len(done.failures)}
