"""Athena: its two functions, their spill bucket and the data catalog."""

from aws_cdk import aws_athena as athena
from aws_cdk import aws_lambda as lambda_

from sleeper.athena.properties import (
    ATHENA_CATALOG,
    ATHENA_MEMORY_MB,
    ATHENA_SPILL,
    ATHENA_SPILL_EXPIRY_DAYS,
    ATHENA_TIMEOUT_SECONDS,
)
from stacks.constructs.bucket import make_bucket
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import DATA, Permission, list_tables, objects_in, read_objects
from stacks.constructs.state_permissions import hold, read_state
from stacks.context import StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack


class AthenaStack(SystemStack):
    """Athena invokes the functions with the permissions of the user who runs the query."""

    buckets = (ATHENA_SPILL,)

    def create(self, context: StackContext) -> None:
        deployment, emptier = context.deployment, context.emptier
        days = deployment.get(ATHENA_SPILL_EXPIRY_DAYS)
        make_bucket(self, "Spill", deployment, ATHENA_SPILL, emptier=emptier, expires_days=days)
        metadata = self._function(deployment, "Metadata")
        records = self._function(deployment, "Records", _write_spilled(deployment))
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
                list_tables(deployment),
                *hold(deployment),
                read_objects(deployment, DATA),
                *more,
            ],
            size=Size(
                memory_mb=deployment.get(ATHENA_MEMORY_MB),
                timeout_seconds=deployment.get(ATHENA_TIMEOUT_SECONDS),
            ),
        )


def _write_spilled(deployment: Deployment) -> Permission:
    """Allows writing spilled rows of reads."""
    actions = ("s3:PutObject", "s3:AbortMultipartUpload")
    return Permission(
        actions, objects_in(deployment, ATHENA_SPILL, "athena/*"), "blocks of later queries"
    )
