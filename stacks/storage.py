"""The buckets of properties and of tables' data."""

import aws_cdk as cdk
from constructs import Construct

from sleeper.properties.deployed import (
    ATHENA_SPILL,
    BULK_EXPORT_RESULTS,
    BULK_IMPORT,
    CONFIG,
    QUERY_RESULTS,
    TABLE_DATA,
    UPLOADS_PREFIX,
)
from sleeper.properties.instance import RETAIN_INFRA
from sleeper.stash.properties import STASHES
from stacks.constructs.bucket import make_bucket
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import empty
from stacks.deployment import Deployment

_PASSING = (QUERY_RESULTS, ATHENA_SPILL, BULK_IMPORT, BULK_EXPORT_RESULTS)
_LASTING = (CONFIG, TABLE_DATA, STASHES)
_LONGEST_SECONDS = 900
_UPLOAD_DAYS = 1


class StorageStack(cdk.NestedStack):
    """Lasting buckets outlive the stack, unless the properties say otherwise.

    `emptier` is the function that empties buckets before their deletion.
    """

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, construct_id)
        kept = deployment.get(RETAIN_INFRA)
        self.emptier = make_function(
            self,
            "Emptier",
            deployment,
            FunctionCode("empty_bucket"),
            permissions=empty(deployment, *_PASSING, *(() if kept else _LASTING)),
            size=Size(timeout_seconds=_LONGEST_SECONDS, keeps_state=False),
        )
        make_bucket(self, "Config", deployment, CONFIG, emptier=self.emptier, lasting=True)
        make_bucket(
            self,
            "TableData",
            deployment,
            TABLE_DATA,
            emptier=self.emptier,
            lasting=True,
            expires_days=_UPLOAD_DAYS,
            expires_prefix=UPLOADS_PREFIX,
        )
