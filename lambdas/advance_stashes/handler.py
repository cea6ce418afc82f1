"""Plans stashes, sends their tasks, and completes them."""

from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.reports.metric import Metric
from sleeper.stash.control import control_stashes
from sleeper.workers.lambda_function import Event, lambda_function, put_task_metrics


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """Returns the numbers of stashes that were planned, completed, failed, or had an error."""
    report = control_stashes(instance)
    counts = {
        Metric.STASHES_COMPLETED: len(report.completed),
        Metric.STASHES_FAILED: len(report.failed),
    }
    put_task_metrics(instance, JobKind.STASH, {name: n for name, n in counts.items() if n})
    return {
        "planned": len(report.planned),
        "completed": len(report.completed),
        "failed": len(report.failed),
        "problems": len(report.problems),
    }
