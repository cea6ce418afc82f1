"""Ingest: the queue of jobs, and the tasks that run them."""

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sleeper.properties.deployment import INGEST_TASK_PERIOD_MINUTES
from sleeper.properties.instance import (
    INGEST_TASK_CPU,
    INGEST_TASK_MEMORY_MB,
    INGEST_VISIBILITY_SECONDS,
)
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import (
    COMMITS,
    DATA,
    read_objects,
    read_sources,
    receive,
    run_task,
    send,
    write_objects,
)
from stacks.constructs.state_permissions import commit, hold
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.deployment import Deployment


class IngestStack(cdk.NestedStack):
    """Tasks run while the queue has messages."""

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
            "ingest",
            visibility_seconds=deployment.get(INGEST_VISIBILITY_SECONDS),
        )
        WorkerTask(
            self,
            "Task",
            deployment=deployment,
            cluster=cluster,
            kind=TaskKind(
                kind="ingest",
                size=TaskSize.read(deployment, INGEST_TASK_CPU, INGEST_TASK_MEMORY_MB),
                starts_every_minutes=deployment.get(INGEST_TASK_PERIOD_MINUTES),
                permissions=[
                    *commit(deployment),
                    *run_task(deployment),
                    *read_sources(deployment),
                    # Tables can be inputs of the fields that an ingest fills.
                    *hold(deployment),
                    read_objects(deployment, DATA),
                    write_objects(deployment, DATA, COMMITS),
                    receive(deployment, jobs.declared),
                    send(deployment, "commits"),
                ],
            ),
        )
