"""Stash: the function that starts and completes stashes, the queue, tasks, and the bucket."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.properties.deployed import TASK_DEFINITIONS
from sleeper.properties.deployment import INGEST_CPU_ARCHITECTURE
from sleeper.reports.metric import INSTANCE, NAMESPACE, TASK_KIND, Metric
from sleeper.stash.properties import (
    STASH_ALARM_HOURS,
    STASH_BUCKET,
    STASH_PERIOD_MINUTES,
    STASH_TASK_CPU,
    STASH_TASK_MEMORY_MB,
    STASHES,
)
from stacks.constructs.bucket import make_bucket
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import (
    DATA,
    Permission,
    commit,
    count,
    read_objects,
    read_sketches,
    read_state,
    receive,
    send,
    track,
)
from stacks.constructs.schedule import start_every
from stacks.constructs.stash_permissions import advance_stashes, run_stash_tasks
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.deployment import Deployment

_ADVANCE = "advance_stashes"
_TIMEOUT_SECONDS = 900


class StashStack(cdk.NestedStack):
    """A rule starts, plans and completes stashes every minute, and tasks write their files.

    The function has the permissions `spark` too, to start runs that Spark writes. `bucket_name` is
    the bucket of stashes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
        emptier: lambda_.IFunction,
        cluster: ecs.ICluster,
        spark: Sequence[Permission],
    ) -> None:
        super().__init__(scope, construct_id)
        tasks = make_job_queue(self, deployment, "stash", alarms=alarms)
        self.bucket_name = deployment.get(STASH_BUCKET) or deployment.bucket_name(STASHES)
        if deployment.get(STASH_BUCKET) is None:
            make_bucket(
                self, "Stashes", deployment, STASHES, emptier=emptier, lasting=True, versioned=False
            )
        minutes = deployment.get(STASH_PERIOD_MINUTES)
        advance = make_function(
            self,
            "Advance",
            deployment,
            FunctionCode(_ADVANCE, in_image=True),
            permissions=[
                *read_state(deployment),
                # Holds are entries of the log.
                *commit(deployment),
                *advance_stashes(deployment),
                read_sketches(deployment),
                count(deployment, "stash"),
                send(deployment, "stash"),
                *spark,
            ],
            size=Size(timeout_seconds=_TIMEOUT_SECONDS),
        )
        start_every(advance, deployment, minutes, "advance-stashes")
        _add_alarms(self, deployment, alarms)
        WorkerTask(
            self,
            "Task",
            deployment=deployment,
            cluster=cluster,
            kind=TaskKind(
                kind="stash",
                place=TASK_DEFINITIONS["stash"],
                size=TaskSize(
                    deployment.get(INGEST_CPU_ARCHITECTURE),
                    deployment.get(STASH_TASK_CPU),
                    deployment.get(STASH_TASK_MEMORY_MB),
                ),
                starts_every_minutes=minutes,
                permissions=[
                    *track(deployment),
                    *run_stash_tasks(deployment),
                    read_objects(deployment, DATA),
                    receive(deployment, tasks.declared),
                ],
            ),
        )


def _add_alarms(scope: Construct, deployment: Deployment, alarms: sns.ITopic) -> None:
    """Adds alarms on stashes that failed or did not start, and if chosen on hours without one."""
    for name, metric, text in (
        ("Failed", Metric.STASHES_FAILED, "a stash failed, or left out a table"),
        ("Missed", Metric.STASHES_MISSED, "a scheduled stash has not started"),
    ):
        alarm_name = deployment.name(f"stashes-{name.lower()}")
        alarm = cloudwatch.Alarm(
            scope,
            name,
            alarm_name=alarm_name,
            alarm_description=f"{text}: `sleeper stash status` shows the reason",
            metric=_metric(deployment, metric, cdk.Duration.minutes(5)),
            threshold=1,
            evaluation_periods=1,
            comparison_operator=(cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD),
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(alarms))
        deployment.alarms.append(alarm_name)
    hours = deployment.get(STASH_ALARM_HOURS)
    if not hours:
        return
    name = deployment.name("stashes-late")
    late = cloudwatch.Alarm(
        scope,
        "Late",
        alarm_name=name,
        alarm_description=f"no stash was completed for {hours} hours",
        metric=_metric(deployment, Metric.STASHES_COMPLETED, cdk.Duration.hours(1)),
        threshold=1,
        evaluation_periods=hours,
        comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
        treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
    )
    late.add_alarm_action(actions.SnsAction(alarms))
    deployment.alarms.append(name)


def _metric(deployment: Deployment, metric: Metric, period: cdk.Duration) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric.value,
        dimensions_map={INSTANCE: deployment.id, TASK_KIND: "stash"},
        statistic="Sum",
        period=period,
    )
