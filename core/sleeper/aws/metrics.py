"""Values of metrics of CloudWatch. Each metric that is read has a price."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sleeper.aws.clients import aws_client
from sleeper.aws.errors import translate_errors

DELAY = timedelta(minutes=5)
"""The time by which values can be late."""
_NAMESPACES = {
    "": "AWS/Lambda",
    "FunctionName": "AWS/Lambda",
    "QueueName": "AWS/SQS",
    "TableName": "AWS/DynamoDB",
    "BucketName": "AWS/S3",
    "LogGroupName": "AWS/Logs",
}


@dataclass(frozen=True, slots=True)
class Series:
    """A metric to read: its name, the resource, and how its values are summarized.

    Without a dimension, it is of all functions of the account. `more` are further dimensions.
    """

    metric: str
    dimension: str
    name: str
    statistic: str
    period_seconds: int
    more: tuple[tuple[str, str], ...] = ()


Values = Mapping[Series, Sequence[tuple[datetime, float]]]
"""The values of metrics with their times, the oldest first."""


def read_metrics(series: Iterable[Series], now_ms: int, span: timedelta) -> Values:
    """Returns the values of the span before the time."""
    ids = {f"m{number}": each for number, each in enumerate(series)}
    found: dict[Series, list[tuple[datetime, float]]] = {each: [] for each in ids.values()}
    if not ids:
        return found
    end = to_time(now_ms)
    with translate_errors("metrics of CloudWatch"):
        pages = aws_client("cloudwatch").get_paginator("get_metric_data")
        for page in pages.paginate(
            MetricDataQueries=[_query(name, each) for name, each in ids.items()],
            StartTime=end - span - DELAY,
            EndTime=end,
            ScanBy="TimestampAscending",
        ):
            for result in page["MetricDataResults"]:
                values = zip(result["Timestamps"], result["Values"], strict=True)
                found[ids[result["Id"]]] += values
    return found


def to_time(time_ms: int) -> datetime:
    """Returns the time of milliseconds since the epoch."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _query(name: str, series: Series) -> dict[str, Any]:
    named = ((series.dimension, series.name),) if series.dimension else ()
    return {
        "Id": name,
        "MetricStat": {
            "Metric": {
                "Namespace": _NAMESPACES[series.dimension],
                "MetricName": series.metric,
                "Dimensions": [{"Name": key, "Value": each} for key, each in named + series.more],
            },
            "Period": series.period_seconds,
            "Stat": series.statistic,
        },
    }
