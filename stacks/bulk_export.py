"""Bulk export: its queue, tasks and results bucket."""

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.properties.deployed import (
    BULK_EXPORT_RESULTS,
    BULK_EXPORT_S3_BUCKET,
    TASK_DEFINITIONS,
)
from sleeper.properties.deployment import (
    EXPORT_TASK_CPU,
    EXPORT_TASK_MEMORY_MB,
    INGEST_TASK_PERIOD_MINUTES,
)
from sleeper.properties.instance import QUERY_RESULTS_DAYS
from stacks.constructs.bucket import make_bucket
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import (
    DATA,
    commit,
    read_objects,
    receive,
    track,
    write_exports,
)
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.deployment import Deployment


class BulkExportStack(cdk.NestedStack):
    """Tasks run while the queue has messages."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
        emptier: lambda_.IFunction,
        cluster: ecs.ICluster,
    ) -> None:
        super().__init__(scope, construct_id)
        jobs = make_job_queue(self, deployment, "bulk_export", alarms=alarms)
        days = deployment.get(QUERY_RESULTS_DAYS)
        make_bucket(
            self, "Results", deployment, BULK_EXPORT_RESULTS, emptier=emptier, expires_days=days
        )
        deployment.record(BULK_EXPORT_S3_BUCKET, deployment.bucket_name(BULK_EXPORT_RESULTS))
        WorkerTask(
            self,
            "Task",
            deployment=deployment,
            cluster=cluster,
            kind=TaskKind(
                kind="bulk_export",
                place=TASK_DEFINITIONS["bulk_export"],
                size=TaskSize.read(deployment, EXPORT_TASK_CPU, EXPORT_TASK_MEMORY_MB),
                starts_every_minutes=deployment.get(INGEST_TASK_PERIOD_MINUTES),
                permissions=[
                    # Holds are entries of the log.
                    *commit(deployment),
                    *track(deployment),
                    *write_exports(deployment),
                    read_objects(deployment, DATA),
                    receive(deployment, jobs.declared),
                ],
            ),
        )
