"""Publishes tables for readers of Iceberg after commits, and every few minutes those that wait."""

from sleeper.iceberg.automatic import count_late, publish_all, publish_changed
from sleeper.iceberg.metrics import KIND
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, changed_tables, lambda_function, put_task_metrics


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:
    """Handles events of the log table's stream, or of the schedule.

    An event of the stream is not tried again, because the schedule finds what it missed. Returns
    the numbers of published tables and of problems.
    """
    if "Records" in event:
        report = publish_changed(instance, changed_tables(event))
    else:
        report = publish_all(instance)
        put_task_metrics(instance, KIND, count_late(instance))
    return {"published": report.published, "problems": len(report.problems)}
