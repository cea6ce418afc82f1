"""A function that receives the messages of a queue: queue, dead letters and function."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.properties.deployment import LAMBDA_TIMEOUT_SECONDS
from sleeper.retries import JOB_RETRY_SECONDS, RETRY_VARIABLE
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import Permission, receive
from stacks.deployment import Deployment

_TIMES_TIMEOUT = 6
"""Ratio of a queue's visibility timeout to its function's timeout, as AWS recommends."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """`queue` is the key of the queue, and `code` the function that receives its messages.

    `permissions` are those beside receiving. `at_once_max` limits concurrent runs, and `batch` the
    messages of one run. `visibility_seconds` is by default six times the timeout. Unless a caller
    waits for the messages (`has_caller`), the function retries requests until its timeout. A
    function that `sends_to_itself` may do so without end, where Lambda stops others after 16 times.
    """

    queue: str
    code: FunctionCode
    permissions: Sequence[Permission]
    name: str | None = None
    size: Size = Size()  # noqa: RUF009 (frozen)
    receives_max: int | None = None
    at_once_max: int | None = None
    batch: int = 10
    visibility_seconds: int | None = None
    has_caller: bool = False
    sends_to_itself: bool = False


def make_receiver(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    receiver: Receiver,
) -> lambda_.Function:
    """Creates the queue and returns its function, which reports the messages that failed."""
    timeout = receiver.size.timeout_seconds or deployment.get(LAMBDA_TIMEOUT_SECONDS)
    source = make_job_queue(
        scope,
        deployment,
        receiver.queue,
        visibility_seconds=receiver.visibility_seconds or _TIMES_TIMEOUT * timeout,
        receives_max=receiver.receives_max,
    )
    function = make_function(
        scope,
        construct_id,
        deployment,
        receiver.code,
        permissions=[*receiver.permissions, receive(deployment, source.declared)],
        name=receiver.name,
        size=receiver.size,
        sends_to_itself=receiver.sends_to_itself,
    )
    if not receiver.has_caller:
        function.add_environment(RETRY_VARIABLE, str(min(JOB_RETRY_SECONDS, timeout // 3)))
    lambda_.EventSourceMapping(
        function,
        "Source",
        target=function,
        event_source_arn=source.queue.queue_arn,
        batch_size=receiver.batch,
        report_batch_item_failures=True,
        max_concurrency=receiver.at_once_max,
    )
    return function
