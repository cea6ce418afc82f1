"""Bulk import and export: their queues, one for each platform, and their buckets."""

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.properties.deployed_stores import BULK_EXPORT_RESULTS, BULK_IMPORT
from sleeper.properties.instance import QUERY_RESULTS_DAYS
from stacks.constructs.bucket import make_bucket
from stacks.constructs.job_queue import make_job_queue
from stacks.deployment import Deployment

_WORK_DAYS = 7


class BulkImportStack(cdk.NestedStack):
    """`queues` are the keys of the platforms' queues. Nothing takes the messages yet."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
        emptier: lambda_.IFunction,
        queues: tuple[str, ...],
    ) -> None:
        super().__init__(scope, construct_id)
        for key in queues:
            make_job_queue(self, deployment, key, alarms=alarms)
        make_bucket(self, "Work", deployment, BULK_IMPORT, emptier=emptier, expires_days=_WORK_DAYS)


class BulkExportStack(cdk.NestedStack):
    """What clients find by the instance's properties. Nothing takes the messages yet."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
        emptier: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        make_job_queue(self, deployment, "bulk_export", alarms=alarms)
        days = deployment.get(QUERY_RESULTS_DAYS)
        make_bucket(
            self, "Results", deployment, BULK_EXPORT_RESULTS, emptier=emptier, expires_days=days
        )
