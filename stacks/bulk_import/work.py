"""The bucket of messages and runs, which the platforms of bulk imports share."""

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.properties.deployed import BULK_IMPORT
from stacks.constructs.bucket import make_bucket
from stacks.deployment import Deployment

_WORK_DAYS = 7


class BulkImportStack(cdk.NestedStack):
    """Objects expire after a week, which is longer than any job."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        emptier: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        make_bucket(self, "Work", deployment, BULK_IMPORT, emptier=emptier, expires_days=_WORK_DAYS)
