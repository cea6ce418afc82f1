"""IAM statements for the inputs of adjunct stores: each names what it reads."""

from collections.abc import Sequence

from aws_cdk import Aws

from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.properties import ADJUNCT_SECRETS
from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import VPC
from stacks.constructs.permissions import DATA, Permission, read_objects, read_secrets
from stacks.constructs.state_permissions import hold, read_state
from stacks.deployment import Deployment

_OUTSIDE = ("kafka", "kinesis", "dynamodb")


def fill_stores(deployment: Deployment, stores: Sequence[StoreDefinition]) -> list[Permission]:
    """Allows reading the inputs of the stores. InvalidRequestError for one that AWS cannot read."""
    permissions: list[Permission] = []
    for each in stores:
        kind, _, rest = each.input.partition(":")
        if kind in _OUTSIDE and deployment.get(VPC) is None:
            raise InvalidRequestError(
                f"store {each.name!r}: the network of the deployment does not reach {each.input} "
                f"(expected {VPC.name}, a network that does)"
            )
        permissions += _read_input(deployment, each, kind, rest)
    if any(each.input.startswith("table:") for each in stores):
        permissions += _read_tables(deployment)
    secrets = deployment.get(ADJUNCT_SECRETS)
    return [*permissions, *read_secrets(deployment, secrets)]


def _read_tables(deployment: Deployment) -> list[Permission]:
    return [*read_state(deployment), *hold(deployment), read_objects(deployment, DATA)]


def _read_input(
    deployment: Deployment, store: StoreDefinition, kind: str, rest: str
) -> list[Permission]:
    match kind:
        case "table" | "kafka":
            return []
        case "kinesis":
            return _read_stream(deployment, rest.partition("?")[0])
        case "dynamodb":
            return _read_table_stream(deployment, rest.partition("?")[0])
        case "stash" | "files" if rest.startswith("s3://"):
            return _read_bucket(rest.removeprefix("s3://"))
    raise InvalidRequestError(
        f"store {store.name!r}: input {store.input!r} (expected on AWS: table:NAME, "
        "stash:s3://BUCKET/PREFIX#TABLE, files:s3://BUCKET/PREFIX, kinesis:STREAM, dynamodb:TABLE "
        "or kafka://HOST:PORT/TOPIC)"
    )


def _read_stream(deployment: Deployment, name: str) -> list[Permission]:
    actions = (
        "kinesis:DescribeStreamSummary",
        "kinesis:GetRecords",
        "kinesis:GetShardIterator",
        "kinesis:ListShards",
    )
    return [Permission(actions, [deployment.arn("kinesis", f"stream/{name}")])]


def _read_table_stream(deployment: Deployment, name: str) -> list[Permission]:
    table = deployment.arn("dynamodb", f"table/{name}")
    actions = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
    return [
        Permission(("dynamodb:DescribeTable",), [table]),
        Permission(actions, [f"{table}/stream/*"], "a stream is named after its creation"),
        Permission(("dynamodb:ListStreams",), ["*"], "listing streams does not support resources"),
    ]


def _read_bucket(location: str) -> list[Permission]:
    bucket, _, prefix = location.partition("#")[0].partition("?")[0].partition("/")
    arn = f"arn:{Aws.PARTITION}:s3:::{bucket}"
    # A pattern of files begins with plain text.
    plain = prefix.partition("*")[0]
    return [
        Permission(("s3:ListBucket",), [arn]),
        Permission(("s3:GetObject",), [f"{arn}/{plain}*"], "the objects of datasets"),
    ]
