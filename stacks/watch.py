"""The watch: a function that looks for what does not happen, and the alarms on its metrics."""

import json
from collections.abc import Iterator

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.properties.deployed import TRANSACTION_LOG
from sleeper.properties.instance import QUEUE_ALARM_MINUTES
from sleeper.reports.metric import INSTANCE_KIND, Metric
from stacks.constructs.alarm import Alarm, add_alarm
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.metric import kind_metric
from stacks.constructs.permissions import Permission
from stacks.constructs.schedule import start_every
from stacks.deployment import Deployment, queue_named
from stacks.reporting import read_reports

WATCH, _COMMITTER = "watch-instance", "commit-transactions"
_PERIOD_MINUTES = 5
_TIMEOUT_SECONDS = 900
# A time in which the watch runs, even if a run is late or repeated.
_SHORT, _HOUR = cdk.Duration.minutes(15), cdk.Duration.hours(1)
_LATE_COMMITS_SECONDS = 300
# Retries hide fewer.
_THROTTLES = 100


class WatchStack(cdk.NestedStack):
    """Created after the functions and queues that it watches.

    Few alarms stand for all queues and functions, because each metric of an alarm has a price. The
    metrics of the watch have one only in hours in which there is something to report.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, deployment: Deployment, alarms: sns.ITopic
    ) -> None:
        super().__init__(scope, construct_id)
        watch = make_function(
            self,
            "Watch",
            deployment,
            FunctionCode(
                WATCH.replace("-", "_"),
                environment={"SLEEPER_WATCH_MINUTES": str(_PERIOD_MINUTES)},
            ),
            permissions=[
                *read_reports(deployment),
                Permission(
                    ("cloudwatch:GetMetricData",), ["*"], "GetMetricData does not support resources"
                ),
                *_switch_sources(deployment),
            ],
            size=Size(timeout_seconds=_TIMEOUT_SECONDS),
        )
        start_every(watch, deployment, _PERIOD_MINUTES, WATCH)
        watch.add_environment("SLEEPER_WATCHED", json.dumps(_watched(deployment)))
        watch.add_environment("SLEEPER_SOURCES", json.dumps(deployment.on_demand))
        for alarm in _alarms(deployment, watch):
            construct_id = alarm.name.title().replace("-", "")
            add_alarm(self, construct_id, deployment, alarms, alarm)


def _switch_sources(deployment: Deployment) -> list[Permission]:
    """Allows enabling and disabling the polls of queues on demand."""
    arns = [
        deployment.arn("lambda", f"event-source-mapping:{source}")
        for source in deployment.on_demand.values()
    ]
    actions = ("lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping")
    return [Permission(actions, arns)] if arns else []


def _watched(deployment: Deployment) -> dict[str, object]:
    """Returns `sleeper.aws.watch.WatchedResources` as JSON."""
    prefix = deployment.name("")
    names = (name.removeprefix(prefix) for name in deployment.functions)
    return {
        "prefix": prefix,
        "watch": WATCH,
        "functions": {name: deployment.schedules.get(name, 0) for name in names},
        "throttled": [_COMMITTER],
        "tables": [deployment.table_name(TRANSACTION_LOG)],
    }


def _alarms(deployment: Deployment, watch: lambda_.Function) -> Iterator[Alarm]:
    """Yields the alarms. `docs/alarms.md` has a runbook for each."""

    def of_instance(
        metric: Metric, period: cdk.Duration, statistic: str = "Maximum"
    ) -> cloudwatch.IMetric:
        return kind_metric(deployment, INSTANCE_KIND, metric, statistic, period)

    minutes = deployment.get(QUEUE_ALARM_MINUTES)
    yield Alarm(
        "watch-stopped",
        "the function that watches the instance fails or does not run",
        watch.metric_errors(period=_SHORT),
        periods=2,
        on_missing_data=True,
        is_of_schedule=True,
    )
    yield Alarm(
        "dead-letters",
        "messages failed repeatedly and are dead letters",
        of_instance(Metric.DEAD_LETTERS, _SHORT),
    )
    yield Alarm(
        "messages-late",
        f"a message has waited in its queue for {minutes} minutes",
        of_instance(Metric.OLDEST_MESSAGE_SECONDS, _SHORT),
        threshold=60 * minutes,
    )
    yield Alarm(
        "commits-late",
        f"commits have waited for more than {_LATE_COMMITS_SECONDS // 60} minutes",
        _age_of_commits(deployment),
        threshold=_LATE_COMMITS_SECONDS,
        periods=3,
    )
    yield Alarm(
        "throttled",
        "the committer or the table of logs was throttled within an hour",
        of_instance(Metric.THROTTLES, _HOUR),
        threshold=_THROTTLES,
    )
    yield Alarm(
        "functions-failing",
        "a function has failed in most of its runs of an hour",
        of_instance(Metric.FAILING_FUNCTIONS, _HOUR),
    )
    yield Alarm(
        "tasks-not-started",
        "tasks could not be started for 15 minutes, while jobs wait",
        of_instance(Metric.TASK_STARTS_FAILED, cdk.Duration.minutes(5), "Sum"),
        periods=3,
    )
    for name, metric, text in (
        ("overdue", Metric.OVERDUE, "a schedule is missed"),
        ("failing", Metric.FAILING, "jobs fail or died, or those of an optional part"),
        ("lagging", Metric.LAGGING, "compaction or exports do not keep up"),
    ):
        yield Alarm(name, text, of_instance(metric, _HOUR))


def _age_of_commits(deployment: Deployment) -> cloudwatch.IMetric:
    return cloudwatch.Metric(
        namespace="AWS/SQS",
        metric_name="ApproximateAgeOfOldestMessage",
        dimensions_map={"QueueName": deployment.name(queue_named("commits").name)},
        statistic="Maximum",
        period=cdk.Duration.minutes(5),
    )
