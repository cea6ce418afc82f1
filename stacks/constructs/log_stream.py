"""The stream of the log table, which starts functions after commits."""

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_

from sleeper.properties.deployed import TRANSACTION_LOG
from stacks.constructs.permissions import Permission
from stacks.deployment import Deployment

_EVENTS_PER_BATCH = 100
# Later, the schedule of the function has found what an event tells.
_EVENT_AGE_MAX = cdk.Duration.minutes(2)


def start_after_commits(
    function: lambda_.Function, log_stream: str, wait_seconds: int | None = None
) -> None:
    """Starts the function after new entries of logs, not after changes of heads and cursors.

    It waits so long for further entries. Lambda lets two functions follow a stream.
    """
    entries = {
        "eventName": lambda_.FilterRule.is_equal("INSERT"),
        "dynamodb": {"Keys": {"item": {"S": lambda_.FilterRule.begins_with("entry#")}}},
    }
    lambda_.EventSourceMapping(
        function,
        "Commits",
        target=function,
        event_source_arn=log_stream,
        starting_position=lambda_.StartingPosition.LATEST,
        batch_size=_EVENTS_PER_BATCH,
        max_batching_window=None if wait_seconds is None else cdk.Duration.seconds(wait_seconds),
        retry_attempts=0,
        max_record_age=_EVENT_AGE_MAX,
        filters=[lambda_.FilterCriteria.filter(entries)],
    )


def read_log_stream(deployment: Deployment) -> list[Permission]:
    """Allows Lambda to read the stream for a function."""
    stream = f"{deployment.table_arn(TRANSACTION_LOG)}/stream/*"
    actions = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
    return [
        Permission(actions, [stream], "a stream is named after its creation"),
        Permission(("dynamodb:ListStreams",), ["*"], "listing streams does not support resources"),
    ]
