"""The KMS key of the user that encrypts what an instance stores.

S3, DynamoDB and SQS use the key in the name of their caller, so that a role needs the key for the
content that it reads or writes. Other services, such as CloudWatch, use it in their own name, which
the policy of the key must allow (docs/security.md).
"""

from collections.abc import Iterable, Mapping, Sequence, Set

from aws_cdk import Aws
from aws_cdk import aws_kms as kms
from constructs import Construct

from sleeper.properties.deployment import FORMER_KMS_KEYS, KMS_KEY
from stacks.constructs.permissions import Permission
from stacks.deployment import Deployment

_READS: Mapping[str, Set[str]] = {
    "dynamodb": {"BatchGetItem", "GetItem", "GetRecords", "Query", "Scan"},
    "s3": {"GetObject"},
    "sqs": {"ReceiveMessage"},
}
_WRITES: Mapping[str, Set[str]] = {
    "dynamodb": {"BatchWriteItem", "DeleteItem", "PutItem", "UpdateItem"},
    "s3": {"PutObject"},
    "sqs": {"SendMessage"},
}
"""The actions of each service that need the key. A test has the list of those that do not."""


def find_key(scope: Construct, construct_id: str, deployment: Deployment) -> kms.IKey | None:
    """Returns the key of the resource `construct_id`; None if AWS's own keys encrypt it."""
    arn = deployment.get(KMS_KEY)
    return None if arn is None else kms.Key.from_key_arn(scope, f"{construct_id}Key", arn)


def use_key(deployment: Deployment, permissions: Iterable[Permission]) -> list[Permission]:
    """Returns the permissions to use the keys that others need, through the services they name.

    A write needs `kms:Decrypt` too: for the parts of an object, and for the key of a table.
    """
    key, former = deployment.get(KMS_KEY), deployment.get(FORMER_KMS_KEYS)
    actions = [action.split(":") for each in permissions for action in each.actions]
    written = {service for service, name in actions if name in _WRITES.get(service, ())}
    read = {service for service, name in actions if name in _READS.get(service, ())}
    keys = [*([key] if key else ()), *former]
    allowed = [_through(read | written, "kms:Decrypt", keys)] if keys and read | written else []
    if key and written:
        allowed.append(_through(written, "kms:GenerateDataKey", [key]))
    return allowed


def _through(services: Set[str], action: str, keys: Sequence[str]) -> Permission:
    """Allows an action on keys, if one of the services asks for it."""
    names = [f"{service}.{Aws.REGION}.amazonaws.com" for service in sorted(services)]
    return Permission((action,), keys, condition=("StringEquals", "kms:ViaService", names))
