"""Starts the stashes that are due, plans stashes, sends their tasks, and completes them."""

from sleeper.instance import Instance
from sleeper.stash.control import control_stashes
from sleeper.stash.due import start_due_stashes
from sleeper.stash.metrics import KIND, StashMetric
from sleeper.stash.schedules import ScheduleStore
from sleeper.workers.lambda_function import Event, lambda_function, put_task_metrics


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """Returns the numbers of stashes that started, were planned, completed, failed or deleted.

    Then the numbers of due stashes that wait for the end of another one, and of errors.
    """
    due = start_due_stashes(instance)
    report = control_stashes(instance)
    missed = ScheduleStore(instance.storage.root).list_missed(instance.clock())
    counts = {
        StashMetric.COMPLETED: len(report.completed),
        StashMetric.FAILED: len(report.failed) + len(report.partial),
        StashMetric.MISSED: len(missed),
    }
    put_task_metrics(instance, KIND, {name: n for name, n in counts.items() if n})
    return {
        "started": len(due.started),
        "planned": len(report.planned),
        "completed": len(report.completed),
        "failed": len(report.failed),
        "pruned": len(due.pruned),
        "waiting": len(due.waiting),
        "problems": len(due.problems) + len(report.problems),
    }
