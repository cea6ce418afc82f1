"""Sends the due runs of adapters to their queue."""

from sleeper.adapters.due import send_due_runs
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """Returns the numbers of runs sent, of due runs that wait, and of adapters with problems."""
    report = send_due_runs(instance)
    return {
        "sent": len(report.sent),
        "waiting": len(report.waiting),
        "problems": len(report.problems),
    }
