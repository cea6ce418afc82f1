"""A function of the instance: its log group, its role, its environment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from sleeper.properties.deployed import CONFIG
from sleeper.properties.deployment import (
    LAMBDA_CPU_ARCHITECTURE,
    LAMBDA_DISK_MB,
    LAMBDA_MEMORY_MB,
    LAMBDA_TIMEOUT_SECONDS,
    TRACING,
)
from sleeper.properties.images import NamedImage
from sleeper.properties.instance import LOG_RETENTION_DAYS
from sleeper.reports.metric import NAMESPACE
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.image import make_image
from stacks.constructs.key import find_key
from stacks.constructs.permissions import Permission
from stacks.constructs.role import make_role
from stacks.deployment import Deployment

PYTHON = lambda_.Runtime.PYTHON_3_13


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a function. The defaults are the properties of all functions."""

    memory_mb: int | None = None
    timeout_seconds: int | None = None
    keeps_state: bool = True
    concurrency_reserved: int | None = None


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """The code of a function: `lambdas/<handler>/handler.py`, from the zip or from the image.

    Functions that read data files use the image.
    """

    handler: str
    in_image: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def make_function(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    code: FunctionCode,
    *,
    permissions: Iterable[Permission],
    name: str | None = None,
    size: Size = Size(),
    sends_to_itself: bool = False,
) -> lambda_.Function:
    """Returns a function, named after its handler by default."""
    full_name = deployment.name(name or code.handler.replace("_", "-"))
    log_group = make_log_group(scope, f"{construct_id}Log", deployment, f"/aws/lambda/{full_name}")
    role = make_role(
        scope,
        f"{construct_id}Role",
        deployment,
        service="lambda",
        permissions=[*permissions, *_own_permissions(log_group, deployment)],
    )
    traced = deployment.get(TRACING)
    timeout = size.timeout_seconds or deployment.get(LAMBDA_TIMEOUT_SECONDS)
    memory_mb = size.memory_mb or deployment.get(LAMBDA_MEMORY_MB)
    disk_mb = deployment.get(LAMBDA_DISK_MB) if size.keeps_state else 512
    function = lambda_.Function(
        scope,
        construct_id,
        function_name=full_name,
        **_code_arguments(scope, deployment, code),  # type: ignore[arg-type]
        architecture=architecture(deployment.get(LAMBDA_CPU_ARCHITECTURE)),
        memory_size=memory_mb,
        timeout=cdk.Duration.seconds(timeout),
        ephemeral_storage_size=cdk.Size.mebibytes(disk_mb),
        environment={
            **environment(deployment, code.handler.replace("_", "-"), traced=traced),
            **code.environment,
        },
        role=role,
        log_group=log_group,
        logging_format=lambda_.LoggingFormat.JSON,
        tracing=lambda_.Tracing.ACTIVE if traced else lambda_.Tracing.DISABLED,
        reserved_concurrent_executions=size.concurrency_reserved,
        recursive_loop=lambda_.RecursiveLoop.ALLOW if sends_to_itself else None,
    )
    deployment.functions.append(full_name)
    deployment.billed.append(f"function:{full_name.removeprefix(deployment.name(''))}:{memory_mb}")
    acknowledge(function, "L1", "datasketches has no wheel for a newer Python")
    return function


def make_log_group(
    scope: Construct, construct_id: str, deployment: Deployment, name: str
) -> logs.LogGroup:
    """Returns a log group with the retention of the instance's properties."""
    group = logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        encryption_key=find_key(scope, construct_id, deployment),
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    days = deployment.get(LOG_RETENTION_DAYS)
    # The construct's enum has no lookup by number.
    resource = cast(logs.CfnLogGroup, group.node.default_child)
    resource.retention_in_days = days if days > 0 else None
    return group


def environment(deployment: Deployment, service: str, *, traced: bool) -> dict[str, str]:
    """Returns the environment of every function and task."""
    return {
        "SLEEPER_INSTANCE": f"aws:{deployment.id}",
        "SLEEPER_CONFIG_BUCKET": deployment.bucket_name(CONFIG),
        "POWERTOOLS_SERVICE_NAME": service,
        "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "POWERTOOLS_TRACE_DISABLED": str(not traced).lower(),
    }


def architecture(name: str) -> lambda_.Architecture:
    """Returns the processor that a property names."""
    return lambda_.Architecture.ARM_64 if name == "ARM64" else lambda_.Architecture.X86_64


def _code_arguments(
    scope: Construct, deployment: Deployment, code: FunctionCode
) -> dict[str, object]:
    handler = f"lambdas.{code.handler}.handler.handler"
    if not code.in_image:
        asset = deployment.code
        return {
            "runtime": PYTHON,
            "handler": handler,
            "code": lambda_.Code.from_bucket(asset.bucket, asset.s3_object_key),
        }
    image = make_image(
        scope, deployment, NamedImage("function", deployment.get(LAMBDA_CPU_ARCHITECTURE))
    )
    return {
        "runtime": lambda_.Runtime.FROM_IMAGE,
        "handler": lambda_.Handler.FROM_IMAGE,
        "code": lambda_.Code.from_ecr_image(
            image.repository, tag_or_digest=image.tag, cmd=[handler]
        ),
    }


def _own_permissions(log_group: logs.LogGroup, deployment: Deployment) -> list[Permission]:
    streams = ("logs:CreateLogStream", "logs:PutLogEvents")
    own = [Permission(streams, (log_group.log_group_arn,))]
    if deployment.get(TRACING):
        actions = ("xray:PutTraceSegments", "xray:PutTelemetryRecords")
        own.append(Permission(actions, ("*",), "X-Ray does not support resources"))
    return own
