"""Starts tasks of a kind, as many as its queue's messages need."""

import os

from sleeper.jobs.event import JobKind
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function
from sleeper.wiring.task_starting import start_tasks


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (only that it came)
    """SLEEPER_TASK_KIND is `ingest` or `compaction`."""
    done = start_tasks(instance, JobKind(os.environ["SLEEPER_TASK_KIND"]))
    return {"running": done.running, "started": done.started, "failures": len(done.failures)}
