"""CloudWatch metrics of stashes."""

from enum import StrEnum

KIND = "stash"
"""Their dimension (`sleeper.reports.metric.TASK_KIND`)."""


class StashMetric(StrEnum):
    """Names of the metrics. MISSED is the number of schedules that are late, each minute."""

    COMPLETED = "StashesCompleted"
    FAILED = "StashesFailed"
    MISSED = "StashesMissed"
