"""CloudWatch metrics of all export queues of an instance together."""

from enum import StrEnum

KIND = "export-queue"
"""Their dimension (`sleeper.reports.metric.TASK_KIND`)."""


class ExportMetric(StrEnum):
    """Names of the metrics."""

    PENDING = "ExportsPending"
    DEAD = "ExportsDead"
    OLDEST_SECONDS = "OldestExportSeconds"
    PROBLEMS = "ExportQueueProblems"
