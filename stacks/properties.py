"""Custom resources that write the instance's properties and create its tables."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.admin.instance_folder import TableDefinition
from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import ACCOUNT, OPTIONAL_STACKS, REGION, RETAIN_INFRA
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import (
    BIRTHMARK,
    change_instance_properties,
    change_table_index,
    commit,
    protect_tables,
    read_state,
    write_objects,
)
from stacks.deployment import Deployment

_TIMEOUT_SECONDS = 300
# One message describes a custom resource, and Lambda limits its size.
_DEFINITION_BYTES_MAX = 200 * 1024


class PropertiesStack(cdk.NestedStack):
    """Created last, because it writes the addresses of all other resources."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        tables: Sequence[TableDefinition],
    ) -> None:
        super().__init__(scope, construct_id)
        write = make_function(
            self,
            "Write",
            deployment,
            FunctionCode("write_properties"),
            permissions=[
                *change_instance_properties(deployment),
                *protect_tables(deployment),
            ],
            size=Size(timeout_seconds=_TIMEOUT_SECONDS, keeps_state=False),
        )
        deployment.record(ACCOUNT, cdk.Aws.ACCOUNT_ID)
        deployment.record(REGION, cdk.Aws.REGION)
        written = _resource(
            self,
            "Properties",
            write,
            "Custom::SleeperProperties",
            {
                "Set": _published(deployment),
                "Deployed": dict(deployment.deployed),
                "Protected": [deployment.table_name(t) for t in deployment.lasting_tables],
                "Protect": str(deployment.get(RETAIN_INFRA)).lower(),
            },
        )
        define = self._make_definer(deployment)
        for table in tables:
            defined = _resource(
                self, f"Table-{table.name}", define, "Custom::SleeperTable", _described(table)
            )
            defined.node.add_dependency(written)

    def _make_definer(self, deployment: Deployment) -> lambda_.Function:
        return make_function(
            self,
            "Define",
            deployment,
            FunctionCode("define_tables"),
            permissions=[
                *read_state(deployment),
                *commit(deployment),
                *change_table_index(deployment),
                write_objects(deployment, BIRTHMARK),
            ],
            size=Size(timeout_seconds=_TIMEOUT_SECONDS),
        )


def _published(deployment: Deployment) -> dict[str, str]:
    """Returns the users' settings, with stack names that clients of gchq/sleeper accept."""
    values = dict(deployment.properties.values)
    if OPTIONAL_STACKS.name in values:
        stacks = deployment.get(OPTIONAL_STACKS)
        values[OPTIONAL_STACKS.name] = OPTIONAL_STACKS.kind.format(stacks)
    return values


def _resource(
    scope: Construct,
    construct_id: str,
    function: lambda_.Function,
    resource_type: str,
    properties: dict[str, object],
) -> cdk.CustomResource:
    return cdk.CustomResource(
        scope,
        construct_id,
        resource_type=resource_type,
        service_token=function.function_arn,
        service_timeout=cdk.Duration.seconds(_TIMEOUT_SECONDS + 60),
        properties=properties,
    )


def _described(table: TableDefinition) -> dict[str, object]:
    size = len((table.schema + table.split_points).encode())
    if size > _DEFINITION_BYTES_MAX:
        raise InvalidRequestError(
            f"table {table.name!r}: schema and split points have {size:,} bytes, and a "
            f"deployment supports {_DEFINITION_BYTES_MAX:,}: use `sleeper table create`"
        )
    return {
        "Name": table.name,
        "Schema": table.schema,
        "Settings": dict(table.settings),
        "SplitPoints": table.split_points,
    }
