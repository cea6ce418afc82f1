"""Stash: the function that starts and completes stashes, the queue, tasks, and the bucket."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.properties.deployed import TABLE_DATA
from sleeper.stash.destination import reading_policy
from sleeper.stash.metrics import StashMetric
from sleeper.stash.properties import (
    STASH_ALARM_HOURS,
    STASH_BUCKET,
    STASH_PERIOD_MINUTES,
    STASH_TASK_CPU,
    STASH_TASK_MEMORY_MB,
    STASHES,
)
from stacks.constructs.alarm import Alarm, add_alarm
from stacks.constructs.bucket import make_bucket
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.job_queue import JobQueue, make_job_queue
from stacks.constructs.metric import Chart, chart_metric, kind_metric
from stacks.constructs.permissions import (
    DATA,
    Permission,
    count,
    list_tables,
    objects_in,
    read_objects,
    read_sketches,
    receive,
    run_task,
    send,
)
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import hold, read_state, see_holds
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.context import StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack

_KIND = "stash"
_ADVANCE = "advance_stashes"
_TIMEOUT_SECONDS = 900
_EACH_STASH = "a folder for each stash"


class StashStack(SystemStack):
    """A rule starts, plans and completes stashes every minute, and tasks write their files.

    The function has the permissions of `spark` too, to start runs that Spark writes.
    """

    buckets = (STASHES,)

    def create(self, context: StackContext) -> None:
        deployment = context.deployment
        tasks = make_job_queue(self, deployment, _KIND)
        bucket_name = deployment.get(STASH_BUCKET)
        if bucket_name is None:
            bucket_name = deployment.bucket_name(STASHES)
            make_bucket(
                self, "Stashes", deployment, STASHES, emptier=context.emptier, versioned=False
            )
        advance = make_function(
            self,
            "Advance",
            deployment,
            FunctionCode(_ADVANCE, in_image=True),
            permissions=[
                *read_state(deployment),
                list_tables(deployment),
                *hold(deployment),
                *_advance_stashes(deployment),
                read_sketches(deployment),
                count(deployment, _KIND),
                send(deployment, _KIND),
                *context.spark,
            ],
            size=Size(timeout_seconds=_TIMEOUT_SECONDS),
        )
        start_every(advance, deployment, deployment.get(STASH_PERIOD_MINUTES), "advance-stashes")
        _add_alarms(self, deployment, context.alarms)
        kind = _task_kind(deployment, tasks)
        cluster = context.network.cluster
        WorkerTask(self, "Task", deployment=deployment, cluster=cluster, kind=kind)
        parent = self.nested_stack_parent
        policy = self.to_json_string(reading_policy(f"s3://{bucket_name}"))
        cdk.CfnOutput(parent or self, "StashReaderPolicy", value=policy)

    @classmethod
    def administer(cls, deployment: Deployment) -> Sequence[Permission]:
        return _advance_stashes(deployment)

    @classmethod
    def report(cls, deployment: Deployment) -> Sequence[Permission]:
        return [
            Permission(("s3:ListBucket",), [deployment.bucket_arn(TABLE_DATA)]),
            Permission(("s3:GetObject",), _records(deployment), _EACH_STASH),
        ]

    @classmethod
    def run_with_spark(cls, deployment: Deployment) -> Sequence[Permission]:
        return [
            *_run_tasks(deployment),
            see_holds(deployment),
            read_objects(deployment, DATA),
        ]

    @classmethod
    def make_charts(cls, deployment: Deployment) -> Sequence[Chart]:
        metrics = [chart_metric(deployment, _KIND, metric, "Sum") for metric in StashMetric]
        return [("Stashes", metrics)]


def _task_kind(deployment: Deployment, tasks: JobQueue) -> TaskKind:
    return TaskKind(
        kind=_KIND,
        size=TaskSize.read(deployment, STASH_TASK_CPU, STASH_TASK_MEMORY_MB),
        starts_every_minutes=deployment.get(STASH_PERIOD_MINUTES),
        permissions=[
            *run_task(deployment),
            *_run_tasks(deployment),
            # The versions are held by the function.
            see_holds(deployment),
            read_objects(deployment, DATA),
            receive(deployment, tasks.declared),
        ],
    )


def _add_alarms(scope: Construct, deployment: Deployment, alarms: sns.ITopic) -> None:
    """Adds alarms on stashes that failed or did not start, and if chosen on hours without one."""
    for name, metric, text in (
        ("Failed", StashMetric.FAILED, "a stash failed, or left out a table"),
        ("Missed", StashMetric.MISSED, "a scheduled stash has not started"),
    ):
        alarm = Alarm(
            f"stashes-{name.lower()}",
            text,
            _metric(deployment, metric, cdk.Duration.minutes(5)),
        )
        add_alarm(scope, name, deployment, alarms, alarm)
    hours = deployment.get(STASH_ALARM_HOURS)
    if hours:
        late = Alarm(
            "stashes-late",
            f"no stash was completed for {hours} hours",
            _metric(deployment, StashMetric.COMPLETED, cdk.Duration.hours(1)),
            periods=hours,
            is_minimum=True,
            on_missing_data=True,
            is_of_schedule=True,
        )
        add_alarm(scope, "Late", deployment, alarms, late)


def _metric(deployment: Deployment, metric: str, period: cdk.Duration) -> cloudwatch.IMetric:
    return kind_metric(deployment, _KIND, metric, "Sum", period)


def _advance_stashes(deployment: Deployment) -> list[Permission]:
    """Allows starting, completing and pruning stashes, and their records."""
    actions = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
    return [
        Permission(("s3:ListBucket",), [deployment.bucket_arn(TABLE_DATA)]),
        Permission(actions, _records(deployment), _EACH_STASH),
        *_write_stashes(deployment),
        Permission(("s3:DeleteObject",), [f"{_bucket_arn(deployment)}/*"], _EACH_STASH),
    ]


def _run_tasks(deployment: Deployment) -> list[Permission]:
    """Allows writing the files of stashes, and recording the results of tasks."""
    return [
        Permission(("s3:GetObject", "s3:PutObject"), _records(deployment), _EACH_STASH),
        *_write_stashes(deployment),
    ]


def _write_stashes(deployment: Deployment) -> list[Permission]:
    arn = _bucket_arn(deployment)
    actions = ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")
    return [
        Permission(("s3:ListBucket",), [arn]),
        Permission(actions, [f"{arn}/*"], _EACH_STASH),
    ]


def _records(deployment: Deployment) -> list[str]:
    return objects_in(deployment, TABLE_DATA, "stashes/*")


def _bucket_arn(deployment: Deployment) -> str:
    given = deployment.get(STASH_BUCKET)
    return (
        deployment.bucket_arn(STASHES) if given is None else f"arn:{cdk.Aws.PARTITION}:s3:::{given}"
    )
