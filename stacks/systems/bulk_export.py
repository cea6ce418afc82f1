"""Bulk export: its queue, tasks and results bucket."""

from sleeper.bulk_export.properties import (
    BULK_EXPORT_RESULTS,
    BULK_EXPORT_S3_BUCKET,
    EXPORT_TASK_CPU,
    EXPORT_TASK_MEMORY_MB,
)
from sleeper.properties.deployment import INGEST_TASK_PERIOD_MINUTES
from sleeper.properties.instance import QUERY_RESULTS_DAYS
from stacks.constructs.bucket import make_bucket
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import DATA, Permission, read_objects, receive, run_task
from stacks.constructs.state_permissions import hold
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.context import StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack


class BulkExportStack(SystemStack):
    """Tasks run while the queue has messages."""

    buckets = (BULK_EXPORT_RESULTS,)

    def create(self, context: StackContext) -> None:
        deployment, emptier = context.deployment, context.emptier
        jobs = make_job_queue(self, deployment, "bulk_export")
        days = deployment.get(QUERY_RESULTS_DAYS)
        make_bucket(
            self, "Results", deployment, BULK_EXPORT_RESULTS, emptier=emptier, expires_days=days
        )
        deployment.record(BULK_EXPORT_S3_BUCKET, deployment.bucket_name(BULK_EXPORT_RESULTS))
        WorkerTask(
            self,
            "Task",
            deployment=deployment,
            cluster=context.network.cluster,
            kind=TaskKind(
                kind="bulk_export",
                size=TaskSize.read(deployment, EXPORT_TASK_CPU, EXPORT_TASK_MEMORY_MB),
                starts_every_minutes=deployment.get(INGEST_TASK_PERIOD_MINUTES),
                permissions=[
                    *hold(deployment),
                    *run_task(deployment),
                    *_write_exports(deployment),
                    read_objects(deployment, DATA),
                    receive(deployment, jobs.declared),
                ],
            ),
        )


def _write_exports(deployment: Deployment) -> list[Permission]:
    """Allows writing exports, and listing their existing parts."""
    bucket = deployment.bucket_arn(BULK_EXPORT_RESULTS)
    return [
        Permission(("s3:ListBucket",), [bucket]),
        Permission(
            ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"),
            [f"{bucket}/*"],
            "one folder per table and export",
        ),
    ]
