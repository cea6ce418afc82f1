"""Metrics of kinds of tasks and of systems, and charts."""

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from sleeper.properties.deployment import DASHBOARD_WINDOW_MINUTES
from sleeper.reports.metric import INSTANCE, NAMESPACE, TASK_KIND
from stacks.deployment import Deployment

Chart = tuple[str, list[cloudwatch.IMetric]]
"""A graph: its title and metrics."""


def kind_metric(
    deployment: Deployment,
    kind: str,
    metric: str,
    statistic: str,
    period: cdk.Duration,
    label: str | None = None,
) -> cloudwatch.Metric:
    """Returns the metric of a kind, as `sleeper.reports.metric` publishes it."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=str(metric),
        dimensions_map={INSTANCE: deployment.id, TASK_KIND: kind},
        statistic=statistic,
        label=label,
        period=period,
    )


def chart_metric(
    deployment: Deployment, kind: str, metric: str, statistic: str, label: str | None = None
) -> cloudwatch.IMetric:
    """Returns the metric as charts show it, labelled by its name."""
    period = chart_period(deployment)
    return kind_metric(deployment, kind, metric, statistic, period, label or str(metric))


def chart_period(deployment: Deployment) -> cdk.Duration:
    """Returns the period of one point of a chart."""
    return cdk.Duration.minutes(deployment.get(DASHBOARD_WINDOW_MINUTES))
