"""Athena: its two functions, their spill bucket and the data catalog."""

import aws_cdk as cdk
from aws_cdk import aws_athena as athena
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.properties.deployed import ATHENA_CATALOG, ATHENA_SPILL
from sleeper.properties.deployment import (
    ATHENA_MEMORY_MB,
    ATHENA_SPILL_EXPIRY_DAYS,
    ATHENA_TIMEOUT_SECONDS,
)
from stacks.constructs.bucket import make_bucket
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import (
    DATA,
    Permission,
    commit,
    read_objects,
    read_state,
    write_spilled,
)
from stacks.deployment import Deployment


class AthenaStack(cdk.NestedStack):
    """Athena invokes the functions with the permissions of the user who runs the query."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        emptier: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        days = deployment.get(ATHENA_SPILL_EXPIRY_DAYS)
        make_bucket(self, "Spill", deployment, ATHENA_SPILL, emptier=emptier, expires_days=days)
        metadata = self._function(deployment, "Metadata")
        records = self._function(deployment, "Records", write_spilled(deployment))
        catalog = f"sleeper_{deployment.id.lower().replace('.', '_').replace('-', '_')}"
        athena.CfnDataCatalog(
            self,
            "Catalog",
            name=catalog,
            type="LAMBDA",
            description=f"The tables of the Sleeper instance {deployment.id}",
            parameters={
                "metadata-function": metadata.function_arn,
                "record-function": records.function_arn,
            },
        )
        deployment.record(ATHENA_CATALOG, catalog)

    def _function(self, deployment: Deployment, name: str, *more: Permission) -> lambda_.Function:
        # Both take holds; the metadata of large leaves needs sketches, or the files themselves.
        return make_function(
            self,
            name,
            deployment,
            FunctionCode(f"athena_{name.lower()}", in_image=True),
            permissions=[
                *read_state(deployment),
                *commit(deployment),
                read_objects(deployment, DATA),
                *more,
            ],
            size=Size(
                memory_mb=deployment.get(ATHENA_MEMORY_MB),
                timeout_seconds=deployment.get(ATHENA_TIMEOUT_SECONDS),
            ),
        )
