"""A function that receives the messages of a queue: queue, dead letters and function."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.properties.deployment import LAMBDA_TIMEOUT_SECONDS
from sleeper.properties.instance import QUEUE_RECEIVES_MAX
from sleeper.retries import FUNCTION_RECEIVES_MIN, JOB_RETRY_SECONDS, RETRY_VARIABLE
from stacks.constructs.concurrency import limit_source
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import Permission, receive
from stacks.deployment import Deployment

_TIMES_TIMEOUT = 6
"""Ratio of a queue's visibility timeout to its function's timeout, as AWS recommends.

Lambda repeats a throttled run until the visibility timeout of its messages ends.
"""


@dataclass(frozen=True, slots=True)
class Receiver:
    """`queue` is the key of the queue, and `code` the function that receives its messages.

    `permissions` are those beside receiving. `at_once_max` limits concurrent runs, of which the
    account's quota may allow fewer, and `batch` the messages of one run. `visibility_seconds` is by
    default six times the timeout. Unless a caller waits for the messages (`has_caller`), the
    function retries requests until its timeout. A function that `sends_to_itself` may do so without
    end, where Lambda stops others after 16 times. The queue of one `on_demand`, whose messages may
    wait for some minutes, is polled only while it has messages (`sleeper.aws.polling`).
    """

    queue: str
    code: FunctionCode
    permissions: Sequence[Permission]
    name: str | None = None
    size: Size = Size()  # noqa: RUF009 (frozen)
    receives_max: int | None = None
    at_once_max: int = 10
    batch: int = 10
    visibility_seconds: int | None = None
    has_caller: bool = False
    sends_to_itself: bool = False
    on_demand: bool = False


def function_receives_max(deployment: Deployment) -> int:
    """Returns the receives of a message before it is a dead letter of a function."""
    return max(FUNCTION_RECEIVES_MIN, deployment.get(QUEUE_RECEIVES_MAX))


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
        receives_max=receiver.receives_max or function_receives_max(deployment),
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
    mapping = lambda_.EventSourceMapping(
        function,
        "Source",
        target=function,
        event_source_arn=source.queue.queue_arn,
        batch_size=receiver.batch,
        report_batch_item_failures=True,
    )
    if receiver.on_demand:
        deployment.on_demand[receiver.queue] = mapping.event_source_mapping_id
    # Lambda throttles what exceeds a reservation.
    reserved = receiver.size.concurrency_reserved
    if reserved:
        limit_source(mapping, reserved)
    else:
        deployment.sources.append((mapping, receiver.at_once_max))
    return function
