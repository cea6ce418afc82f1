"""The buckets of properties and of tables' data."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployed import CONFIG, QUERY_RESULTS, TABLE_DATA, UPLOADS_PREFIX
from sleeper.properties.instance import RETAIN_INFRA
from stacks.constructs.bucket import make_bucket
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import empty, read_stack_status
from stacks.deployment import Deployment
from stacks.system_stack import all_stacks

_LONGEST_SECONDS = 900
_UPLOAD_DAYS = 1


class StorageStack(cdk.NestedStack):
    """Lasting buckets outlive the stack, unless the properties say otherwise.

    `emptier` is the function that empties buckets before their deletion.
    """

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, construct_id)
        of_systems = [bucket for stack in all_stacks() for bucket in stack.buckets]
        buckets = [QUERY_RESULTS, CONFIG, TABLE_DATA, *of_systems]
        buckets.sort(key=lambda bucket: bucket.lasting)
        if deployment.get(RETAIN_INFRA):
            buckets = [bucket for bucket in buckets if not bucket.lasting]
        self.emptier = make_function(
            self,
            "Emptier",
            deployment,
            FunctionCode("empty_bucket"),
            permissions=[*empty(deployment, *buckets), read_stack_status(deployment)],
            size=Size(timeout_seconds=_LONGEST_SECONDS, keeps_state=False),
        )
        make_bucket(self, "Config", deployment, CONFIG, emptier=self.emptier)
        make_bucket(
            self,
            "TableData",
            deployment,
            TABLE_DATA,
            emptier=self.emptier,
            expires_days=_UPLOAD_DAYS,
            expires_prefix=UPLOADS_PREFIX,
        )
