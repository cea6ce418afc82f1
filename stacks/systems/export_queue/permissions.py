"""IAM statements for export queues: their storage, the stream of logs, and receivers."""

from aws_cdk import aws_iam as iam

from sleeper.export_queue.properties import (
    EXPORT_QUEUES,
    EXPORT_SECRETS,
    EXPORT_SQS_QUEUES,
    EXPORT_SUBNETS,
)
from sleeper.properties.deployed import TABLE_DATA
from stacks.constructs.log_stream import read_log_stream
from stacks.constructs.permissions import (
    DATA,
    Permission,
    delete_items,
    objects_in,
    read_objects,
    read_secrets,
    use_table,
    write_objects,
)
from stacks.constructs.state_permissions import advance_cursors, commit, hold, read_state
from stacks.deployment import Deployment


def use_export_queues(deployment: Deployment) -> list[Permission]:
    """Allows reading and changing queues and their pending exports."""
    actions = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
    objects = objects_in(deployment, TABLE_DATA, "export-queues/*")
    return [
        use_table(deployment, EXPORT_QUEUES),
        delete_items(deployment, EXPORT_QUEUES),
        Permission(("s3:ListBucket",), [deployment.bucket_arn(TABLE_DATA)]),
        Permission(actions, objects, "an object for each large content"),
    ]


def report_export_queues(deployment: Deployment) -> Permission:
    """Allows reading queues and the numbers of their exports, as reports do."""
    return Permission(("dynamodb:GetItem", "dynamodb:Query"), [deployment.table_arn(EXPORT_QUEUES)])


def follow_logs(deployment: Deployment) -> list[Permission]:
    """Allows reading the stream of the log table, and the rows of tables that have queues."""
    return [
        *read_state(deployment),
        advance_cursors(deployment),
        *hold(deployment),
        read_objects(deployment, DATA),
        *read_log_stream(deployment),
    ]


def export(deployment: Deployment) -> list[Permission]:
    """Allows sending to receivers: tables of the instance, listed queues, those with a password."""
    secrets = deployment.get(EXPORT_SECRETS)
    permissions = [
        *read_state(deployment),
        *commit(deployment),
        *hold(deployment),
        read_objects(deployment, DATA),
        write_objects(deployment, DATA),
        *read_secrets(deployment, secrets),
    ]
    queues = deployment.get(EXPORT_SQS_QUEUES)
    if queues:
        permissions.append(Permission(("sqs:GetQueueUrl", "sqs:SendMessage"), queues))
    if deployment.get(EXPORT_SUBNETS):
        permissions.append(_use_network())
    return permissions


_NETWORK_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)


def _use_network() -> Permission:
    """Allows Lambda to connect a function to subnets."""
    why = "network interfaces of a function do not support resources"
    return Permission(_NETWORK_ACTIONS, ["*"], why)


def deny_network_to_code(deployment: Deployment, function_name: str) -> iam.PolicyStatement:
    """Denies the code of a function what its role allows Lambda for the function's network.

    Lambda's own requests have no source function.
    """
    return iam.PolicyStatement(
        effect=iam.Effect.DENY,
        actions=list(_NETWORK_ACTIONS),
        resources=["*"],
        conditions={
            "ArnEquals": {
                "lambda:SourceFunctionArn": deployment.arn("lambda", f"function:{function_name}")
            }
        },
    )
