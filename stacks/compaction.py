"""Compaction: a function creates jobs for each online table, and tasks run them."""

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sleeper.properties.deployment import (
    COMPACTION_CREATION_MEMORY_MB,
    COMPACTION_CREATION_TIMEOUT_SECONDS,
    COMPACTION_TASK_PERIOD_MINUTES,
)
from sleeper.properties.instance import (
    COMPACTION_ARM_CPU,
    COMPACTION_ARM_MEMORY_MB,
    COMPACTION_CPU_ARCHITECTURE,
    COMPACTION_CREATION_PERIOD_MINUTES,
    COMPACTION_RETRIES_MAX,
    COMPACTION_VISIBILITY_SECONDS,
    COMPACTION_X86_CPU,
    COMPACTION_X86_MEMORY_MB,
)
from stacks.constructs.function import Size
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.per_table_operation import Operation, PerTableOperation
from stacks.constructs.permissions import (
    COMMITS,
    DATA,
    count,
    read_objects,
    receive,
    record_jobs,
    run_task,
    see_jobs,
    send,
    write_objects,
)
from stacks.constructs.state_permissions import commit
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.deployment import Deployment


class CompactionStack(cdk.NestedStack):
    """Job creation waits while many commits are queued."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        cluster: ecs.ICluster,
    ) -> None:
        super().__init__(scope, construct_id)
        jobs = make_job_queue(
            self,
            deployment,
            "compaction",
            visibility_seconds=deployment.get(COMPACTION_VISIBILITY_SECONDS),
            receives_max=deployment.get(COMPACTION_RETRIES_MAX),
        )
        PerTableOperation(self, "Jobs", deployment=deployment, operation=_job_creation(deployment))
        WorkerTask(
            self,
            "Task",
            deployment=deployment,
            cluster=cluster,
            kind=TaskKind(
                kind="compaction",
                size=_task_size(deployment),
                starts_every_minutes=deployment.get(COMPACTION_TASK_PERIOD_MINUTES),
                permissions=[
                    *commit(deployment),
                    *run_task(deployment),
                    read_objects(deployment, DATA),
                    write_objects(deployment, DATA, COMMITS),
                    receive(deployment, jobs.declared),
                    send(deployment, "commits"),
                ],
            ),
        )


def _job_creation(deployment: Deployment) -> Operation:
    return Operation(
        queue="compaction_job_creation",
        handler="create_compaction_jobs",
        every_minutes=deployment.get(COMPACTION_CREATION_PERIOD_MINUTES),
        permissions=[
            *commit(deployment),
            record_jobs(deployment),
            see_jobs(deployment),
            send(deployment, "compaction"),
            count(deployment, "commits"),
        ],
        size=Size(
            memory_mb=deployment.get(COMPACTION_CREATION_MEMORY_MB),
            timeout_seconds=deployment.get(COMPACTION_CREATION_TIMEOUT_SECONDS),
        ),
    )


def _task_size(deployment: Deployment) -> TaskSize:
    cpu, memory = (
        (COMPACTION_ARM_CPU, COMPACTION_ARM_MEMORY_MB)
        if deployment.get(COMPACTION_CPU_ARCHITECTURE) == "ARM64"
        else (COMPACTION_X86_CPU, COMPACTION_X86_MEMORY_MB)
    )
    return TaskSize.read(deployment, cpu, memory, COMPACTION_CPU_ARCHITECTURE)
