"""A CloudWatch dashboard of queues, failures, tasks and tables.

It shows the queues and functions that were created before it, and the metrics of tables and tasks
that the code publishes (`sleeper.reports.metric`). Tables are created without a deployment, so the
dashboard searches for their metrics.
"""

from collections.abc import Iterable, Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from sleeper.properties.deployed import DeployedQueue
from sleeper.properties.deployment import DASHBOARD_WINDOW_MINUTES, METRICS_PERIOD_MINUTES
from sleeper.properties.instance import OptionalStack
from sleeper.reports.metric import (
    INSTANCE,
    INSTANCE_KIND,
    INSTANCE_METRICS,
    NAMESPACE,
    TABLE,
    Metric,
)
from stacks.constructs.metric import Chart, chart_metric, chart_period
from stacks.deployment import Deployment
from stacks.system_stack import chosen_stacks

_WIDTH = 24
_HEIGHT = 7
_TEXT_HEIGHT = 2
_ALARMS_HEIGHT = 4
_SHOWN = cdk.Duration.hours(12)
_OF_TABLES = """# Tables
Rows, files, leaves and background work per table. Compactions that aggregate or filter cause a
negative rate of rows. A search shows at most a hundred tables."""
# Contents of a table at the time of the measurement.
_HOLDINGS = (
    ("Rows", (Metric.ROWS,)),
    ("Bytes", (Metric.BYTES,)),
    ("Files", (Metric.FILES, Metric.FILES_WITHOUT_REFERENCES)),
    ("File references", (Metric.FILE_REFERENCES,)),
    ("Partitions", (Metric.PARTITIONS, Metric.LEAF_PARTITIONS)),
    ("Unfinished compaction jobs", (Metric.UNFINISHED_COMPACTION_JOBS,)),
)
_RATES = (
    ("Change of rows, per second", Metric.ROWS),
    ("Transactions, per second", Metric.TRANSACTION_NUMBER),
)
# Operations on a table.
_DEEDS = (
    (
        "Commits by message",
        (Metric.COMMITS_APPLIED, Metric.COMMITS_ALREADY_DONE, Metric.COMMITS_REFUSED),
    ),
    (
        "Compaction jobs",
        (
            Metric.COMPACTION_JOBS_CREATED,
            Metric.COMPACTION_JOBS_RELEASED,
            Metric.COMPACTION_JOBS_SENT_AGAIN,
        ),
    ),
    ("Splitting", (Metric.PARTITIONS_TO_SPLIT, Metric.REFERENCES_PUSHED_DOWN)),
    (
        "Garbage collection and snapshots",
        (Metric.FILES_COLLECTED, Metric.ORPHANS_COLLECTED, Metric.STATE_SNAPSHOTS),
    ),
)


class DashboardStack(cdk.NestedStack):
    """Created after the resources that it shows. `name` is the name of the dashboard."""

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, construct_id)
        self.name = deployment.global_name("dashboard")
        charts = _Charts(deployment)
        rows = [
            [_title(f"# Sleeper instance {deployment.id}\nQueues, failures and tasks.")],
            [_alarms(self, deployment)],
            charts.of_instance(),
            charts.of_queues(),
            charts.of_functions(),
            *charts.of_tasks_and_systems(),
            [_title(_OF_TABLES)],
            *charts.of_tables(),
        ]
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self.name,
            default_interval=_SHOWN,
            period_override=cloudwatch.PeriodOverride.INHERIT,
            widgets=[row for row in rows if row],
        )


class _Charts:
    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        minutes = deployment.get(DASHBOARD_WINDOW_MINUTES)
        self._window = chart_period(deployment)
        # A rate needs a value in each period.
        self._looked_at_minutes = max(minutes, deployment.get(METRICS_PERIOD_MINUTES))

    def of_instance(self) -> list[cloudwatch.IWidget]:
        """Returns what the watch publishes, which the alarms judge."""

        def of_metric(metric: Metric) -> cloudwatch.IMetric:
            return chart_metric(self._deployment, INSTANCE_KIND, metric, "Maximum")

        others = (Metric.OLDEST_MESSAGE_SECONDS, Metric.THROTTLES)
        counts = [of_metric(each) for each in INSTANCE_METRICS if each not in others]
        age, throttles = map(of_metric, others)
        return _beside(
            ("Problems", counts),
            ("Oldest message of all queues, seconds", [age]),
            ("Throttles of the committer and of the log, per hour", [throttles]),
        )

    def of_queues(self) -> list[cloudwatch.IWidget]:
        queues = self._deployment.queues
        return _beside(
            ("Messages that wait", self._of(queues, "ApproximateNumberOfMessagesVisible")),
            (
                "Age of the oldest message, seconds",
                self._of(queues, "ApproximateAgeOfOldestMessage"),
            ),
            (
                "Dead letters",
                [
                    self._of_queue(queue.dead_letters_name, "ApproximateNumberOfMessagesVisible")
                    for queue in queues
                ],
            ),
        )

    def of_functions(self) -> list[cloudwatch.IWidget]:
        return _beside(
            *(
                (title, [self._of_function(name, metric, statistic) for name in self._names])
                for title, metric, statistic in (
                    ("Errors of functions", "Errors", "Sum"),
                    ("Throttles of functions", "Throttles", "Sum"),
                    ("Duration of functions, milliseconds (p99)", "Duration", "p99"),
                )
            )
        )

    def of_tasks_and_systems(self) -> list[list[cloudwatch.IWidget]]:
        """Returns a row for tasks, with systems that have a single chart, and one per other."""
        kinds = self._deployment.task_kinds
        tasks: list[Chart] = []
        if kinds:
            tasks = [
                ("Tasks that run", self._of_kinds(kinds, Metric.TASKS_RUNNING, "Maximum")),
                ("Tasks that were started", self._of_kinds(kinds, Metric.TASKS_STARTED, "Sum")),
            ]
        stacks = chosen_stacks(self._deployment)
        systems = [stack.make_charts(self._deployment) for stack in stacks]
        tasks += [charts[0] for charts in systems if len(charts) == 1]
        rows = [tasks, *(charts for charts in systems if len(charts) > 1)]
        return [_beside(*charts) for charts in rows]

    def of_tables(self) -> list[list[cloudwatch.IWidget]]:
        deeds = [
            (title, [self._of_all_tables(metric, "Sum") for metric in metrics])
            for title, metrics in _DEEDS
        ]
        if not self._deployment.has(OptionalStack.TABLE_METRICS):
            return [_beside(*deeds)]
        holdings = [
            (title, [self._of_all_tables(metric, "Maximum") for metric in metrics])
            for title, metrics in _HOLDINGS
        ]
        rates = [(title, [self._rate(metric)]) for title, metric in _RATES]
        return [_beside(*holdings[:3]), _beside(*holdings[3:]), _beside(*rates), _beside(*deeds)]

    @property
    def _names(self) -> Sequence[str]:
        return self._deployment.functions

    def _of(self, queues: Iterable[DeployedQueue], metric: str) -> list[cloudwatch.IMetric]:
        return [self._of_queue(queue.name, metric) for queue in queues]

    def _of_queue(self, name: str, metric: str) -> cloudwatch.IMetric:
        return cloudwatch.Metric(
            namespace="AWS/SQS",
            metric_name=metric,
            dimensions_map={"QueueName": self._deployment.name(name)},
            statistic="Maximum",
            label=name,
            period=self._window,
        )

    def _of_function(self, name: str, metric: str, statistic: str) -> cloudwatch.IMetric:
        return cloudwatch.Metric(
            namespace="AWS/Lambda",
            metric_name=metric,
            dimensions_map={"FunctionName": name},
            statistic=statistic,
            label=name.removeprefix(self._deployment.name("")),
            period=self._window,
        )

    def _of_kinds(
        self, kinds: Iterable[str], metric: Metric, statistic: str
    ) -> list[cloudwatch.IMetric]:
        return [chart_metric(self._deployment, each, metric, statistic, each) for each in kinds]

    def _of_all_tables(self, metric: Metric, statistic: str) -> cloudwatch.IMetric:
        return cloudwatch.MathExpression(
            expression=self._search(metric, statistic),
            label=f"{metric.value} of ${{PROP('Dim.{TABLE}')}}",
            period=cdk.Duration.minutes(self._looked_at_minutes),
        )

    def _rate(self, metric: Metric) -> cloudwatch.IMetric:
        return cloudwatch.MathExpression(
            expression=f"RATE({self._search(metric, 'Maximum')})",
            label=f"${{PROP('Dim.{TABLE}')}}",
            period=cdk.Duration.minutes(self._looked_at_minutes),
        )

    def _search(self, metric: Metric, statistic: str) -> str:
        """Returns a search for the metric of every table of the instance."""
        wanted = f'MetricName="{metric.value}" {INSTANCE}="{self._deployment.id}"'
        seconds = 60 * self._looked_at_minutes
        return f"SEARCH('{{{NAMESPACE},{INSTANCE},{TABLE}}} {wanted}', '{statistic}', {seconds})"


def _alarms(scope: Construct, deployment: Deployment) -> cloudwatch.IWidget:
    """Returns the alarms of all stacks."""
    return cloudwatch.AlarmStatusWidget(
        title="Alarms",
        width=_WIDTH,
        height=_ALARMS_HEIGHT,
        alarms=[
            cloudwatch.Alarm.from_alarm_arn(
                scope, name, deployment.arn("cloudwatch", f"alarm:{name}")
            )
            for name in deployment.alarms
        ],
    )


def _title(markdown: str) -> cloudwatch.IWidget:
    return cloudwatch.TextWidget(markdown=markdown, width=_WIDTH, height=_TEXT_HEIGHT)


def _beside(*charts: Chart) -> list[cloudwatch.IWidget]:
    """Returns widgets of equal width in one row."""
    return [
        cloudwatch.GraphWidget(
            title=title, left=metrics, width=_WIDTH // len(charts), height=_HEIGHT
        )
        for title, metrics in charts
    ]
