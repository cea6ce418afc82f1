"""Queries by message: the planner, the function that runs leaves, tracker and results."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.properties.deployed import (
    QUERY_RESULTS,
    QUERY_RESULTS_QUEUE_ARN,
    QUERY_RESULTS_QUEUE_URL,
    QUERY_TRACKER,
)
from sleeper.properties.deployment import (
    QUERY_MEMORY_MB,
    QUERY_TIMEOUT_SECONDS,
    QUERY_WARM_MINUTES,
)
from sleeper.properties.instance import QUERY_RESULTS_DAYS, OptionalStack
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.bucket import make_bucket
from stacks.constructs.dynamo_table import make_table
from stacks.constructs.function import FunctionCode, Size
from stacks.constructs.job_queue import make_queue
from stacks.constructs.permissions import DATA, RESULTS_QUEUE, Permission, read_objects, send
from stacks.constructs.receiver import Receiver, function_receives_max, make_receiver
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import hold, read_state
from stacks.deployment import Deployment

# A query of thousands of leaves must not exhaust the account's concurrency.
_AT_ONCE_MAX = 100
# The maximum retention of SQS.
_QUEUE_DAYS_MAX = 14
# It starts a container, which then has nothing to do.
_NO_MESSAGES = {"Records": list[object]()}


class QueryStack(cdk.NestedStack):
    """Both functions read data files, so they use the image, with one message per run.

    `functions` are the functions, which also answer callers over the WebSocket.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        emptier: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        make_table(self, "Tracker", deployment, QUERY_TRACKER)
        days = deployment.get(QUERY_RESULTS_DAYS)
        make_bucket(self, "Results", deployment, QUERY_RESULTS, emptier=emptier, expires_days=days)
        _make_results_queue(self, deployment, days)
        plans = [*_remove_results(deployment), send(deployment, "leaf_query")]
        self.functions = [
            make_receiver(self, construct, deployment, receiver)
            for construct, receiver in {
                "Plan": _receiver(deployment, "query", "plan_query", plans),
                "Run": _receiver(deployment, "leaf_query", "run_leaf_query"),
            }.items()
        ]
        if deployment.has(OptionalStack.KEEP_LAMBDA_WARM):
            minutes = deployment.get(QUERY_WARM_MINUTES)
            for function, name in zip(
                self.functions, ("plan-query", "run-leaf-query"), strict=True
            ):
                start_every(function, deployment, minutes, f"keep-warm-{name}", _NO_MESSAGES)


def _receiver(
    deployment: Deployment, queue: str, handler: str, permissions: Sequence[Permission] = ()
) -> Receiver:
    return Receiver(
        queue=queue,
        code=FunctionCode(handler, in_image=True),
        permissions=[
            *read_state(deployment),
            *hold(deployment),
            read_objects(deployment, DATA),
            _record_queries(deployment),
            *_publish(deployment),
            *permissions,
        ],
        size=Size(
            memory_mb=deployment.get(QUERY_MEMORY_MB),
            timeout_seconds=deployment.get(QUERY_TIMEOUT_SECONDS),
        ),
        # The last receive records the failure of the others.
        receives_max=function_receives_max(deployment) + 1,
        at_once_max=_AT_ONCE_MAX,
        batch=1,
        has_caller=True,
    )


def _make_results_queue(scope: Construct, deployment: Deployment, days: int) -> None:
    """Returns the default queue of query results, from which clients receive."""
    kept = cdk.Duration.days(min(days, _QUEUE_DAYS_MAX))
    name = deployment.name(RESULTS_QUEUE)
    queue = make_queue(scope, "ResultsQueue", deployment, name, kept=kept)
    acknowledge(queue, "SQS3", "only clients receive messages")
    deployment.record(QUERY_RESULTS_QUEUE_URL, queue.queue_url)
    deployment.record(QUERY_RESULTS_QUEUE_ARN, deployment.queue_arn(RESULTS_QUEUE))


def _remove_results(deployment: Deployment) -> list[Permission]:
    """Allows deleting the results of an earlier query when its id comes again."""
    bucket = deployment.bucket_arn(QUERY_RESULTS)
    return [
        Permission(("s3:ListBucket",), [bucket]),
        Permission(("s3:DeleteObject",), [f"{bucket}/query-*"], "a folder for each"),
    ]


def _publish(deployment: Deployment) -> list[Permission]:
    """Allows writing rows to the results bucket, and to clients' queues with the name prefix.

    The policies of other buckets and queues can allow the functions too.
    """
    results = f"{deployment.bucket_arn(QUERY_RESULTS)}/query-*"
    queues = deployment.queue_arn(f"{RESULTS_QUEUE}*")
    return [
        Permission(("s3:PutObject", "s3:AbortMultipartUpload"), [results], "a folder for each"),
        Permission(("sqs:SendMessage", "sqs:GetQueueAttributes"), [queues], "made by clients"),
    ]


def _record_queries(deployment: Deployment) -> Permission:
    """Allows recording the states of queries by message."""
    actions = ("dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem")
    return Permission(actions, [deployment.table_arn(QUERY_TRACKER)])
