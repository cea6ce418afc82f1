"""The ingest batcher, which combines files into jobs by size, count and age."""

from collections.abc import Sequence

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployed import INGEST_BATCHER
from sleeper.properties.deployment import BATCHER_PERIOD_MINUTES
from stacks.constructs.dynamo_table import make_table
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import (
    Permission,
    find_tables,
    read_sources,
    record_jobs,
    see_jobs,
    see_waiting_files,
    send,
)
from stacks.constructs.receiver import Receiver, make_receiver
from stacks.constructs.schedule import start_every
from stacks.deployment import Deployment


class IngestBatcherStack(cdk.NestedStack):
    """`job_queues` are the keys of the deployed queues that receive jobs."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        job_queues: Sequence[str],
    ) -> None:
        super().__init__(scope, construct_id)
        make_table(self, "Requests", deployment, INGEST_BATCHER)
        make_receiver(
            self,
            "Receive",
            deployment,
            Receiver(
                queue="ingest_batcher",
                code=FunctionCode("receive_batch_files"),
                permissions=[
                    *find_tables(deployment),
                    *read_sources(deployment),
                    record_jobs(deployment),
                    Permission(("dynamodb:PutItem",), [deployment.table_arn(INGEST_BATCHER)]),
                ],
                size=Size(keeps_state=False),
            ),
        )
        self._create_batches(deployment, job_queues)

    def _create_batches(self, deployment: Deployment, job_queues: Sequence[str]) -> None:
        function = make_function(
            self,
            "CreateBatches",
            deployment,
            FunctionCode("create_ingest_batches"),
            permissions=[
                *find_tables(deployment),
                record_jobs(deployment),
                see_jobs(deployment),
                *_batch_files(deployment),
                *([send(deployment, *job_queues)] if job_queues else []),
            ],
            size=Size(keeps_state=False),
        )
        minutes = deployment.get(BATCHER_PERIOD_MINUTES)
        start_every(function, deployment, minutes, "create-ingest-batches")


def _batch_files(deployment: Deployment) -> list[Permission]:
    """Allows assigning waiting files to jobs."""
    requests = deployment.table_arn(INGEST_BATCHER)
    return [Permission(("dynamodb:UpdateItem",), [requests]), see_waiting_files(deployment)]
