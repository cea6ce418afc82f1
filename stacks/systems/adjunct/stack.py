"""Adjunct stores: a service whose tasks fill stores on their disks, for a container of the user."""

import re
from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.adjunct.definition import parse_stores
from sleeper.adjunct.metrics import KIND, AdjunctMetric
from sleeper.adjunct.properties import (
    ADJUNCT_ALARM_MINUTES,
    ADJUNCT_DISK_GIB,
    ADJUNCT_READER_IMAGE,
    ADJUNCT_STORES,
    ADJUNCT_TASK_CPU,
    ADJUNCT_TASK_MEMORY_MB,
    ADJUNCT_TASKS,
)
from sleeper.errors import InvalidRequestError
from sleeper.properties.images import NamedImage
from stacks.constructs.alarm import Alarm, add_alarm
from stacks.constructs.function import environment, make_log_group
from stacks.constructs.image import make_image
from stacks.constructs.metric import Chart, chart_metric, kind_metric
from stacks.constructs.task import TaskSize, acknowledge_definition, make_definition
from stacks.context import StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack
from stacks.systems.adjunct.permissions import fill_stores

_VOLUME = "stores"
_PATH = "/stores"
_PROGRAM = ["python", "-m", "sleeper.adjunct.worker_task"]
_STOP_SECONDS = 60
_PROBLEM_MINUTES = 15
_ECR_IMAGE = re.compile(r"([0-9]{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.[a-z.]+/([^:@]+)")


class AdjunctStack(SystemStack):
    """The tasks of the service have no addresses of the internet, and accept no connections.

    CloudFormation waits until the tasks are healthy, so what they read must exist before.
    """

    starts_tasks = True

    @classmethod
    def make_charts(cls, deployment: Deployment) -> Sequence[Chart]:
        age, problems, size = (
            chart_metric(deployment, KIND, metric, "Maximum") for metric in AdjunctMetric
        )
        return [
            ("Time without all data of an adjunct store, seconds", [age]),
            ("Adjunct stores whose updates fail", [problems]),
            ("Size of adjunct stores, bytes", [size]),
        ]

    def create(self, context: StackContext) -> None:
        deployment, network = context.deployment, context.network
        if not deployment.get(ADJUNCT_STORES).strip():
            raise InvalidRequestError(
                f"property {ADJUNCT_STORES.name} is not set (expected NAME=INPUT, such as "
                "accounts=table:accounts)"
            )
        definition = _make_definition(self, deployment)
        subnets = [
            ec2.Subnet.from_subnet_id(self, f"Subnet{number}", subnet)
            for number, subnet in enumerate(network.subnets)
        ]
        ecs.FargateService(
            self,
            "Service",
            service_name=deployment.name(KIND),
            cluster=network.cluster,
            task_definition=definition,
            desired_count=deployment.get(ADJUNCT_TASKS),
            assign_public_ip=network.has_public_addresses,
            vpc_subnets=ec2.SubnetSelection(subnets=subnets),
            security_groups=[network.group],
            # The old tasks serve until the new ones have started.
            min_healthy_percent=100,
            max_healthy_percent=200,
            circuit_breaker=ecs.DeploymentCircuitBreaker(enable=True, rollback=True),
            enable_execute_command=False,
            propagate_tags=ecs.PropagatedTagSource.SERVICE,
        )
        _add_alarms(self, deployment, context.alarms)


def _make_definition(scope: Construct, deployment: Deployment) -> ecs.FargateTaskDefinition:
    stores = parse_stores(deployment.get(ADJUNCT_STORES))
    size = TaskSize.read(deployment, ADJUNCT_TASK_CPU, ADJUNCT_TASK_MEMORY_MB)
    name = deployment.name(f"{KIND}-task")
    definition = make_definition(
        scope,
        deployment,
        name,
        size,
        # A volume of EBS would be as empty for a new task, so the disk of the task is enough.
        disk_gib=deployment.get(ADJUNCT_DISK_GIB),
        permissions=fill_stores(deployment, stores),
        volumes=[ecs.Volume(name=_VOLUME)],
    )
    group = make_log_group(scope, "Log", deployment, f"/sleeper/{name}")
    image = make_image(scope, deployment, NamedImage("worker", size.processor))
    filling = definition.add_container(
        "fill",
        image=image.for_tasks(),
        entry_point=_PROGRAM,
        environment={
            **environment(deployment, f"{KIND}-task", traced=False),
            "SLEEPER_ADJUNCT_STORES": deployment.get(ADJUNCT_STORES),
            "SLEEPER_ADJUNCT_PATH": _PATH,
        },
        logging=ecs.LogDriver.aws_logs(stream_prefix=KIND, log_group=group),
        health_check=ecs.HealthCheck(
            command=["CMD", *_PROGRAM, "check"],
            interval=cdk.Duration.seconds(60),
            timeout=cdk.Duration.seconds(30),
            retries=3,
            start_period=cdk.Duration.seconds(300),
        ),
        stop_timeout=cdk.Duration.seconds(_STOP_SECONDS),
    )
    filling.add_mount_points(
        ecs.MountPoint(container_path=_PATH, source_volume=_VOLUME, read_only=False)
    )
    logging = ecs.LogDriver.aws_logs(stream_prefix="reader", log_group=group)
    _add_reader(definition, deployment, filling, logging)
    acknowledge_definition(definition)
    return definition


def _add_reader(
    definition: ecs.FargateTaskDefinition,
    deployment: Deployment,
    filling: ecs.ContainerDefinition,
    logging: ecs.LogDriver,
) -> None:
    """Adds the container of the user, which reads the stores.

    Its mount is not read-only, because RocksDB's binding writes a file of settings also to read.
    """
    image = deployment.get(ADJUNCT_READER_IMAGE)
    if image is None:
        return
    _allow_to_pull(definition, image)
    reader = definition.add_container(
        "reader",
        image=ecs.ContainerImage.from_registry(image),
        environment={
            "SLEEPER_ADJUNCT_PATH": _PATH,
            "SLEEPER_INSTANCE": f"aws:{deployment.id}",
        },
        logging=logging,
    )
    reader.add_mount_points(
        ecs.MountPoint(container_path=_PATH, source_volume=_VOLUME, read_only=False)
    )
    # The first container gives the volume its owner.
    reader.add_container_dependencies(
        ecs.ContainerDependency(container=filling, condition=ecs.ContainerDependencyCondition.START)
    )


def _allow_to_pull(definition: ecs.FargateTaskDefinition, image: str) -> None:
    """Allows ECS to pull an image of ECR. Other registries know no roles."""
    match = _ECR_IMAGE.match(image)
    if match is None:
        return
    account, region, repository = match.groups()
    actions = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    arn = f"arn:{cdk.Aws.PARTITION}:ecr:{region}:{account}:repository/{repository}"
    definition.add_to_execution_role_policy(iam.PolicyStatement(actions=actions, resources=[arn]))


def _add_alarms(scope: Construct, deployment: Deployment, alarms: sns.ITopic) -> None:
    """Adds alarms on stores that lack data of their inputs, and on failing updates."""
    minutes = deployment.get(ADJUNCT_ALARM_MINUTES)
    if minutes and deployment.get(ADJUNCT_TASKS):
        late = Alarm(
            "adjunct-late",
            f"a store has lacked data of its input for {minutes} minutes, or no task runs",
            _metric(deployment, AdjunctMetric.AGE_SECONDS),
            threshold=60 * minutes,
            periods=_PROBLEM_MINUTES,
            on_missing_data=True,
        )
        add_alarm(scope, "AdjunctLate", deployment, alarms, late)
    problems = Alarm(
        "adjunct-problems",
        f"updates of a store have failed for {_PROBLEM_MINUTES} minutes",
        _metric(deployment, AdjunctMetric.PROBLEMS),
        periods=_PROBLEM_MINUTES,
    )
    add_alarm(scope, "AdjunctProblems", deployment, alarms, problems)


def _metric(deployment: Deployment, metric: str) -> cloudwatch.IMetric:
    return kind_metric(deployment, KIND, metric, "Maximum", cdk.Duration.minutes(1))
