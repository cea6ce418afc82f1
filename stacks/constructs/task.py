"""A kind of task: its Fargate definition, and the function that starts tasks as needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sleeper.properties.declaration import Property
from sleeper.properties.deployed import TASK_DEFINITIONS
from sleeper.properties.deployment import INGEST_CPU_ARCHITECTURE, TASK_DISK_GIB
from sleeper.properties.images import NamedImage
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.function import (
    FunctionCode,
    Size,
    environment,
    make_function,
    make_log_group,
)
from stacks.constructs.image import make_image
from stacks.constructs.permissions import Permission, count, pass_role, read_properties
from stacks.constructs.role import make_role
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import read_state
from stacks.deployment import Deployment

_STOP_SECONDS = 120
_STARTING_SECONDS = 55


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The CPU and memory of a task."""

    processor: str
    cpu: int
    memory_mb: int

    @classmethod
    def read(
        cls,
        deployment: Deployment,
        cpu: Property[int],
        memory_mb: Property[int],
        processor: Property[str] = INGEST_CPU_ARCHITECTURE,
    ) -> Self:
        """Returns the size that the properties of the deployment set."""
        return cls(deployment.get(processor), deployment.get(cpu), deployment.get(memory_mb))


@dataclass(frozen=True, slots=True)
class TaskKind:
    """`kind` is also the key of the queue whose jobs the tasks run."""

    kind: str
    size: TaskSize
    starts_every_minutes: int
    permissions: Sequence[Permission]


class WorkerTask(Construct):
    """A task definition, and the function that starts tasks while the queue has messages."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        cluster: ecs.ICluster,
        kind: TaskKind,
    ) -> None:
        super().__init__(scope, construct_id)
        definition = _definition(self, deployment, kind)
        # The family's newest revision, so that tasks started after a deployment run the new code.
        deployment.record(TASK_DEFINITIONS[kind.kind], definition.family)
        deployment.task_kinds.append(kind.kind)
        deployment.billed.append(f"task:{kind.kind}:{kind.size.cpu}:{kind.size.memory_mb}")
        start = make_function(
            self,
            "Start",
            deployment,
            FunctionCode("start_tasks", environment=_told(kind)),
            permissions=[
                *read_properties(deployment),
                count(deployment, kind.kind),
                *_launching(deployment, definition, cluster),
            ],
            name=f"start-tasks-{kind.kind}",
            size=Size(timeout_seconds=_STARTING_SECONDS, keeps_state=False),
        )
        start_every(start, deployment, kind.starts_every_minutes, f"start-tasks-{kind.kind}")


def make_definition(
    scope: Construct,
    deployment: Deployment,
    name: str,
    size: TaskSize,
    *,
    disk_gib: int,
    permissions: Sequence[Permission],
    volumes: Sequence[ecs.Volume] = (),
) -> ecs.FargateTaskDefinition:
    """Returns a definition without containers. `acknowledge_definition` follows the last one."""
    arm = size.processor == "ARM64"
    return ecs.FargateTaskDefinition(
        scope,
        "Definition",
        family=name,
        cpu=size.cpu,
        memory_limit_mib=size.memory_mb,
        ephemeral_storage_gib=disk_gib,
        volumes=list(volumes),
        task_role=make_role(
            scope, "Role", deployment, service="ecs-tasks", permissions=permissions
        ),
        runtime_platform=ecs.RuntimePlatform(
            cpu_architecture=ecs.CpuArchitecture.ARM64 if arm else ecs.CpuArchitecture.X86_64,
            operating_system_family=ecs.OperatingSystemFamily.LINUX,
        ),
    )


def acknowledge_definition(definition: ecs.FargateTaskDefinition) -> None:
    """Justifies what cdk-nag reports for the definition and the role that starts its containers."""
    acknowledge(definition, "ECS2", "the environment names the instance and contains no secret")
    execution = definition.execution_role
    assert execution is not None
    acknowledge(
        execution, "IAM5[Resource::*]", "ecr:GetAuthorizationToken does not support resources"
    )


def _definition(
    scope: Construct, deployment: Deployment, kind: TaskKind
) -> ecs.FargateTaskDefinition:
    name = deployment.name(f"{kind.kind}-task")
    definition = make_definition(
        scope,
        deployment,
        name,
        kind.size,
        disk_gib=deployment.get(TASK_DISK_GIB),
        permissions=[*read_state(deployment), *kind.permissions],
    )
    image = make_image(scope, deployment, NamedImage("worker", kind.size.processor))
    definition.add_container(
        "worker",
        image=image.for_tasks(),
        environment={
            **environment(deployment, f"{kind.kind}-task", traced=False),
            **_told(kind),
        },
        logging=ecs.LogDriver.aws_logs(
            stream_prefix=kind.kind,
            log_group=make_log_group(scope, "Log", deployment, f"/sleeper/{name}"),
        ),
        stop_timeout=cdk.Duration.seconds(_STOP_SECONDS),
    )
    acknowledge_definition(definition)
    return definition


def _told(kind: TaskKind) -> dict[str, str]:
    """Returns the environment variable with the kind, for tasks and their starter."""
    return {"SLEEPER_TASK_KIND": kind.kind}


def _launching(
    deployment: Deployment, definition: ecs.FargateTaskDefinition, cluster: ecs.ICluster
) -> list[Permission]:
    execution = definition.execution_role
    assert execution is not None
    family = deployment.arn("ecs", f"task-definition/{definition.family}")
    in_cluster = ("ArnEquals", "ecs:cluster", cluster.cluster_arn)
    return [
        Permission(("ecs:RunTask",), [family, f"{family}:*"], "any revision", in_cluster),
        Permission(
            ("ecs:ListTasks",), ["*"], "ecs:ListTasks does not support resources", in_cluster
        ),
        Permission(
            ("ecs:TagResource",),
            [deployment.arn("ecs", f"task/{deployment.name('tasks')}/*")],
            "tasks are created at run time",
            ("StringEquals", "ecs:CreateAction", "RunTask"),
        ),
        *(pass_role(role, "ecs-tasks") for role in (definition.task_role, execution)),
    ]
