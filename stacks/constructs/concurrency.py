"""How many functions the queues of an instance start at once, within the account's quota.

A *throttled* function finds none of the account's concurrency unused. Its message was received, so
a queue that starts more functions than the account allows makes dead letters of messages that no
function has seen. Each queue therefore has a maximum, and all together at most half of the quota:
schedules, clients and other applications need the rest.
"""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_

from sleeper.errors import InvalidRequestError
from sleeper.properties.deployment import (
    COMMITTER_CONCURRENCY_RESERVED,
    LAMBDA_CONCURRENCY_QUOTA,
)
from stacks.deployment import Deployment

_QUEUE_MIN, _QUEUE_MAX = 2, 1000
"""The maxima that Lambda accepts for a queue."""
_UNRESERVED_MIN = 100
"""The concurrency of an account that Lambda does not let functions reserve."""


def share(wanted: Sequence[int], budget: int) -> list[int]:
    """Returns the maximum of each queue: in proportion, if they want more than the budget.

    The minimum of each queue may exceed a small budget.
    """
    spare = max(0, budget - _QUEUE_MIN * len(wanted))
    more = sum(wanted) - _QUEUE_MIN * len(wanted)
    if more <= spare:
        return list(wanted)
    return [_QUEUE_MIN + (each - _QUEUE_MIN) * spare // more for each in wanted]


def limit_sources(deployment: Deployment) -> None:
    """Sets the maxima of all queues that start functions without a reservation."""
    quota = deployment.get(LAMBDA_CONCURRENCY_QUOTA)
    budget = (quota - deployment.get(COMMITTER_CONCURRENCY_RESERVED)) // 2
    maxima = share([wanted for _, wanted in deployment.sources], budget)
    for (source, _), at_once_max in zip(deployment.sources, maxima, strict=True):
        limit_source(source, at_once_max)


def limit_source(source: lambda_.EventSourceMapping, at_once_max: int) -> None:
    """Sets the maximum of a queue, or the nearest that Lambda accepts."""
    resource = source.node.default_child
    assert isinstance(resource, cdk.CfnResource)
    most = min(max(_QUEUE_MIN, at_once_max), _QUEUE_MAX)
    resource.add_property_override("ScalingConfig.MaximumConcurrency", most)


def check_reserved(deployment: Deployment, reserved: int) -> None:
    """InvalidRequestError if Lambda would refuse the reservation."""
    quota = deployment.get(LAMBDA_CONCURRENCY_QUOTA)
    if reserved and reserved > quota - _UNRESERVED_MIN:
        raise InvalidRequestError(
            f"{COMMITTER_CONCURRENCY_RESERVED.name} is {reserved}, and AWS keeps {_UNRESERVED_MIN} "
            f"of the account's {quota} ({LAMBDA_CONCURRENCY_QUOTA.name}) unreserved (expected 0 "
            f"to {max(0, quota - _UNRESERVED_MIN)})"
        )
