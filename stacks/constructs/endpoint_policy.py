"""Policies of VPC endpoints. They restrict roles and grant nothing.

Only principals of the account can use a service through them, so that credentials of another
account cannot carry data out of the network.
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from stacks.deployment import Deployment

_OF_ACCOUNT = {"aws:PrincipalAccount": cdk.Aws.ACCOUNT_ID}
_READ_OBJECTS = ("s3:GetObject", "s3:ListBucket")
_CHANGE_OBJECTS = (
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:GetBucketLocation",
    "s3:GetEncryptionConfiguration",
    "s3:ListBucketMultipartUploads",
    "s3:ListMultipartUploadParts",
)
_ITEMS = (
    "dynamodb:BatchGetItem",
    "dynamodb:BatchWriteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:Scan",
    "dynamodb:UpdateItem",
)
_MESSAGES = (
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
    "sqs:SendMessage",
)
_IMAGES = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
)
_LOGS = (
    "logs:CreateLogStream",
    "logs:DescribeLogGroups",
    "logs:DescribeLogStreams",
    "logs:PutLogEvents",
)


def bound_objects(endpoint: ec2.GatewayVpcEndpoint) -> None:
    """Allows reads of any bucket, and writes to the account's buckets.

    Image layers, EMR's files and users' sources can be in buckets of other accounts.
    """
    everything = [f"arn:{cdk.Aws.PARTITION}:s3:::*"]
    _allow(endpoint, _READ_OBJECTS, everything, None)
    own = {**_OF_ACCOUNT, "aws:ResourceAccount": cdk.Aws.ACCOUNT_ID}
    _allow(endpoint, _CHANGE_OBJECTS, everything, own)


def bound_tables(endpoint: ec2.GatewayVpcEndpoint, deployment: Deployment) -> None:
    """Allows the instance's tables and their indexes."""
    tables = [deployment.arn("dynamodb", f"table/sleeper-{deployment.id}-*")]
    _allow(endpoint, _ITEMS, tables, _OF_ACCOUNT)


def bound_queues(endpoint: ec2.InterfaceVpcEndpoint, deployment: Deployment) -> None:
    """Allows the instance's queues."""
    _allow(endpoint, _MESSAGES, [deployment.queue_arn("*")], _OF_ACCOUNT)


def bound_secrets(endpoint: ec2.InterfaceVpcEndpoint) -> None:
    """Allows reading secrets. The roles of tasks name the secrets."""
    _allow(endpoint, ("secretsmanager:GetSecretValue",), ["*"], _OF_ACCOUNT)


def bound_images(endpoint: ec2.InterfaceVpcEndpoint) -> None:
    """Allows reading images of the account, which are in the repository of the CDK bootstrap."""
    _allow(endpoint, _IMAGES, ["*"], _OF_ACCOUNT)


def bound_logs(endpoint: ec2.InterfaceVpcEndpoint) -> None:
    """Allows writing to log groups of the account."""
    _allow(endpoint, _LOGS, ["*"], _OF_ACCOUNT)


def _allow(
    endpoint: ec2.VpcEndpoint,
    actions: tuple[str, ...],
    resources: list[str],
    equals: dict[str, str] | None,
) -> None:
    endpoint.add_to_policy(
        iam.PolicyStatement(
            principals=[iam.AnyPrincipal()],
            actions=list(actions),
            resources=resources,
            conditions=None if equals is None else {"StringEquals": equals},
        )
    )
