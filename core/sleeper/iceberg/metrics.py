"""The schedule of publications on AWS, and their CloudWatch metrics."""

from enum import StrEnum

SCHEDULE_MINUTES = 5
"""The period of the schedule."""
KIND = "iceberg"
"""The dimension of the metrics (`sleeper.reports.metric.TASK_KIND`)."""


class IcebergMetric(StrEnum):
    """Names of the metrics."""

    LATE = "PublicationsLate"
