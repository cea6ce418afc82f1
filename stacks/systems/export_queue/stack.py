"""Export queues: their storage, the function that captures exports, and the one that drains."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.metrics import KIND, ExportMetric
from sleeper.export_queue.properties import (
    EXPORT_ALARM_MINUTES,
    EXPORT_DRAIN_MEMORY_MB,
    EXPORT_DRAIN_TIMEOUT_SECONDS,
    EXPORT_DRAINS_MAX,
    EXPORT_FOLLOW_MEMORY_MB,
    EXPORT_QUEUES,
    EXPORT_SECURITY_GROUPS,
    EXPORT_SUBNETS,
)
from sleeper.properties.instance import QUEUE_RECEIVES_MAX
from stacks.constructs.alarm import Alarm, add_alarm
from stacks.constructs.dynamo_table import make_table
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.log_stream import start_after_commits
from stacks.constructs.metric import Chart, chart_metric, kind_metric
from stacks.constructs.permissions import Permission, send
from stacks.constructs.receiver import Receiver, make_receiver
from stacks.constructs.schedule import start_every
from stacks.context import StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack
from stacks.systems.export_queue.permissions import (
    deny_network_to_code,
    export,
    follow_logs,
    report_export_queues,
    use_export_queues,
)

_FOLLOW, _DRAIN = "follow_exports", "drain_exports"
_FOLLOW_TIMEOUT_SECONDS = 900
_SCHEDULE_MINUTES = 1
# The bucket of a function that died waits for its message, so the visibility timeout is short, and
# the message of a throttled function is received more often.
_VISIBILITY_MORE_SECONDS = 30
_RECEIVES_MIN = 30
_PROBLEM_MINUTES = 15


class ExportQueueStack(SystemStack):
    """The stream of the log table starts the first function, which sends buckets to the second.

    A schedule also starts the first.
    """

    follows_logs = True

    @classmethod
    def administer(cls, deployment: Deployment) -> Sequence[Permission]:
        return use_export_queues(deployment)

    @classmethod
    def report(cls, deployment: Deployment) -> Sequence[Permission]:
        return [report_export_queues(deployment)]

    @classmethod
    def make_charts(cls, deployment: Deployment) -> Sequence[Chart]:
        pending, dead, oldest, problems = (
            chart_metric(deployment, KIND, metric, "Maximum") for metric in ExportMetric
        )
        return [
            ("Exports", [pending, dead]),
            ("Age of the oldest export, seconds", [oldest]),
            ("Problems of export queues", [problems]),
        ]

    def create(self, context: StackContext) -> None:
        deployment = context.deployment
        make_table(self, "Queues", deployment, EXPORT_QUEUES)
        follow = make_function(
            self,
            "Follow",
            deployment,
            FunctionCode(_FOLLOW, in_image=True),
            permissions=[
                *follow_logs(deployment),
                *use_export_queues(deployment),
                send(deployment, "export_queue"),
            ],
            size=Size(
                memory_mb=deployment.get(EXPORT_FOLLOW_MEMORY_MB),
                timeout_seconds=_FOLLOW_TIMEOUT_SECONDS,
            ),
        )
        assert context.log_stream is not None
        start_after_commits(follow, context.log_stream)
        start_every(follow, deployment, _SCHEDULE_MINUTES, "follow-exports")
        receiver = _receiver(deployment)
        drain = make_receiver(self, "Drain", deployment, receiver)
        _connect(drain, deployment)
        _add_alarms(self, deployment, context.alarms, follow, drain)


def _receiver(deployment: Deployment) -> Receiver:
    timeout_seconds = deployment.get(EXPORT_DRAIN_TIMEOUT_SECONDS)
    return Receiver(
        queue="export_queue",
        code=FunctionCode(_DRAIN, in_image=True),
        permissions=[
            *export(deployment),
            *use_export_queues(deployment),
            send(deployment, "export_queue"),
        ],
        size=Size(
            memory_mb=deployment.get(EXPORT_DRAIN_MEMORY_MB),
            timeout_seconds=timeout_seconds,
        ),
        receives_max=max(_RECEIVES_MIN, deployment.get(QUEUE_RECEIVES_MAX)),
        at_once_max=deployment.get(EXPORT_DRAINS_MAX),
        visibility_seconds=timeout_seconds + _VISIBILITY_MORE_SECONDS,
        # A drain sends its bucket's message again while the bucket has exports.
        sends_to_itself=True,
    )


def _connect(function: lambda_.Function, deployment: Deployment) -> None:
    """Runs the function in the given subnets, from which receivers can be reached."""
    subnets, groups = deployment.get(EXPORT_SUBNETS), deployment.get(EXPORT_SECURITY_GROUPS)
    if not subnets:
        return
    if not groups:
        raise InvalidRequestError(
            f"property {EXPORT_SECURITY_GROUPS.name} is not set (expected security groups of the "
            f"network of {EXPORT_SUBNETS.name})"
        )
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    name = resource.function_name
    assert name is not None
    function.add_to_role_policy(deny_network_to_code(deployment, name))
    network = {"SubnetIds": list(subnets), "SecurityGroupIds": list(groups)}
    resource.add_property_override("VpcConfig", network)


def _add_alarms(
    scope: Construct,
    deployment: Deployment,
    alarms: sns.ITopic,
    follow: lambda_.Function,
    drain: lambda_.Function,
) -> None:
    """Adds alarms on dead exports, on old ones, on exports not captured, and on failing runs."""

    def add(name: str, what: str, metric: cloudwatch.IMetric, threshold: int, minutes: int) -> None:
        construct_id = name.title().replace("-", "")
        add_alarm(
            scope, construct_id, deployment, alarms, Alarm(name, what, metric, threshold, minutes)
        )

    minute = cdk.Duration.minutes(1)
    dead, oldest, problems = (
        kind_metric(deployment, KIND, metric, "Maximum", minute)
        for metric in (
            ExportMetric.DEAD,
            ExportMetric.OLDEST_SECONDS,
            ExportMetric.PROBLEMS,
        )
    )
    add("exports-dead", "exports were refused and are dead letters", dead, 1, 1)
    minutes = deployment.get(EXPORT_ALARM_MINUTES)
    if minutes:
        what = f"an export has been pending for {minutes} minutes"
        add("exports-late", what, oldest, 60 * minutes, 1)
    what = f"exports of a queue were not taken up for {_PROBLEM_MINUTES} minutes"
    add("exports-not-taken-up", what, problems, 1, _PROBLEM_MINUTES)
    for function, name in ((follow, "follow-exports"), (drain, "drain-exports")):
        errors = function.metric_errors(period=minute)
        add(f"{name}-errors", f"function {name} fails", errors, 1, _PROBLEM_MINUTES)
