"""Custom resources that write the instance's properties and create its tables.

Many split points are an asset: a template has at most 1 MB, and the message of a custom resource
less.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from sleeper import __version__
from sleeper.admin.instance_folder import INLINE_POINTS_MAX, TableDefinition
from sleeper.errors import InvalidRequestError
from sleeper.properties.deployed import BILLED_PARTS
from sleeper.properties.instance import ACCOUNT, OPTIONAL_STACKS, REGION, RETAIN_INFRA, VERSION
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import (
    BIRTHMARK,
    Permission,
    change_instance_properties,
    change_table_index,
    protect_tables,
    write_objects,
)
from stacks.constructs.state_permissions import commit, read_state
from stacks.deployment import Deployment
from stacks.watch import WATCH

_TIMEOUT_SECONDS = 300
# One message describes a custom resource, and Lambda limits its size.
_SCHEMA_BYTES_MAX = 200 * 1024


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
                Permission(
                    ("lambda:InvokeFunction",),
                    [deployment.arn("lambda", f"function:{deployment.name(WATCH)}")],
                ),
            ],
            size=Size(timeout_seconds=_TIMEOUT_SECONDS, keeps_state=False),
        )
        deployment.record(ACCOUNT, cdk.Aws.ACCOUNT_ID)
        deployment.record(REGION, cdk.Aws.REGION)
        deployment.record(VERSION, __version__)
        for part in (*deployment.billed, f"alarms:{len(deployment.alarms)}"):
            deployment.record_name(BILLED_PARTS, part)
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
                "Watch": deployment.name(WATCH),
            },
        )
        points = {each.name: asset for each in tables if (asset := self._make_asset(each))}
        define = self._make_definer(deployment, list(points.values()))
        for table in tables:
            described = _described(table, points.get(table.name))
            defined = _resource(
                self, f"Table-{table.name}", define, "Custom::SleeperTable", described
            )
            defined.node.add_dependency(written)

    def _make_asset(self, table: TableDefinition) -> assets.Asset | None:
        """Returns the split points as an object, if they are many."""
        if len(table.split_points) <= INLINE_POINTS_MAX:
            return None
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "splits.txt"
            file.write_text(table.split_points, encoding="utf-8")
            return assets.Asset(self, f"SplitPoints-{table.name}", path=str(file))

    def _make_definer(
        self, deployment: Deployment, points: Sequence[assets.Asset]
    ) -> lambda_.Function:
        own = [f"{each.bucket.bucket_arn}/{each.s3_object_key}" for each in points]
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
                *([Permission(("s3:GetObject",), own)] if own else ()),
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


def _described(table: TableDefinition, points: assets.Asset | None) -> dict[str, object]:
    size = len(table.schema.encode())
    if size > _SCHEMA_BYTES_MAX:
        raise InvalidRequestError(
            f"table {table.name!r}: the schema has {size:,} bytes, and a deployment supports "
            f"{_SCHEMA_BYTES_MAX:,}: use `sleeper table create`"
        )
    split_points: Mapping[str, object] = {"SplitPoints": table.split_points}
    if points is not None:
        split_points = {
            "SplitPointsBucket": points.s3_bucket_name,
            "SplitPointsKey": points.s3_object_key,
        }
    return {
        "Name": table.name,
        "Schema": table.schema,
        "Settings": dict(table.settings),
        **split_points,
    }
