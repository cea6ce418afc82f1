"""CloudWatch metrics of all adjunct stores of a task together."""

from enum import StrEnum

KIND = "adjunct"
"""Their dimension (`sleeper.reports.metric.TASK_KIND`)."""


class AdjunctMetric(StrEnum):
    """Names of the metrics."""

    AGE_SECONDS = "AdjunctStoreAgeSeconds"
    PROBLEMS = "AdjunctStoreProblems"
    BYTES = "AdjunctStoreBytes"
