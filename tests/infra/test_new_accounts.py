"""Deployments to new accounts, with small quotas of Lambda, and functions that it throttles."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.properties.deployment import LAMBDA_CONCURRENCY_QUOTA
from sleeper.properties.values import InstanceProperties
from stacks.constructs.concurrency import check_reserved, share
from stacks.deployment import Deployment
from tests.infra.synthesis import Synthesis

FUNCTION = "AWS::Lambda::Function"


def _reserved(synthesis: Synthesis) -> dict[str, int]:
    return {
        p["FunctionName"].split("-", 2)[2]: p["ReservedConcurrentExecutions"]
        for p in synthesis.properties(FUNCTION)
        if "ReservedConcurrentExecutions" in p
    }


def _at_once(synthesis: Synthesis) -> dict[str, int]:
    """Returns the maxima of the queues that start functions."""
    return {
        _queue(template, source)["QueueName"].split("-", 2)[2]: source["ScalingConfig"][
            "MaximumConcurrency"
        ]
        for template in synthesis.templates.values()
        for source in _sources(template)
    }


def _sources(template: Any) -> list[Any]:
    """Returns the sources of a template's functions that are queues."""
    return [
        resource["Properties"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::EventSourceMapping"
        and "StartingPosition" not in resource["Properties"]
    ]


def _queue(template: Any, source: Any) -> Any:
    return template["Resources"][source["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]


def test_nothing_is_reserved_and_no_function_is_larger_than_new_accounts_allow(
    example: Synthesis, platforms: Synthesis, with_dashboard: Synthesis, athena_stack: Synthesis
) -> None:
    """AWS keeps 100 of the concurrency unreserved, and new accounts have 10 or 50."""
    for synthesis in (example, platforms, athena_stack):
        assert _reserved(synthesis) == {}
    assert _reserved(with_dashboard) == {"commit-transactions": 7}
    for synthesis in (example, platforms, with_dashboard, athena_stack):
        assert max(p["MemorySize"] for p in synthesis.properties(FUNCTION)) <= 3008


def test_queues_start_at_most_half_of_the_quota(
    example: Synthesis, with_dashboard: Synthesis
) -> None:
    most = _at_once(example)
    assert sum(most.values()) == 320
    assert (most["query"], most["transaction-commits.fifo"]) == (100, 10)
    fewer = _at_once(with_dashboard)
    assert set(most) - set(fewer) == {"bulk-import-emr-serverless-jobs"}
    # More than those that are reserved would be throttled.
    assert fewer.pop("transaction-commits.fifo") == 7
    # Half of the other 100. Lambda's minimum is 2, and 26 of the 50 are above it.
    assert 40 < sum(fewer.values()) <= 50
    assert fewer.pop("query") == fewer.pop("leaf-partition-query") == 2 + 98 * 26 // 296
    assert fewer.pop("partition-splitting-jobs") == fewer.pop("row-deletion") == 2 + 18 * 26 // 296
    assert set(fewer.values()) == {2}


@pytest.mark.parametrize(
    ("budget", "maxima"),
    [(500, [100, 10, 4]), (114, [100, 10, 4]), (60, [51, 6, 3]), (6, [2, 2, 2]), (0, [2, 2, 2])],
)
def test_a_budget_is_shared_in_proportion(budget: int, maxima: list[int]) -> None:
    assert share([100, 10, 4], budget) == maxima


def test_a_reservation_that_aws_refuses_is_refused_before() -> None:
    def check(reserved: int, quota: int) -> None:
        values = {LAMBDA_CONCURRENCY_QUOTA.name: str(quota)}
        deployment = cast(Deployment, SimpleNamespace(get=InstanceProperties(values).get))
        check_reserved(deployment, reserved)

    check(0, 10)
    check(10, 110)
    with pytest.raises(InvalidRequestError, match=r"reserved is 10, and AWS keeps 100 of .* 109"):
        check(10, 109)
    with pytest.raises(InvalidRequestError, match=r"expected 0 to 0"):
        check(1, 50)


def test_a_throttled_message_is_no_dead_letter(
    example: Synthesis, platforms: Synthesis, with_dashboard: Synthesis, athena_stack: Synthesis
) -> None:
    """AWS recommends five receives, and a visibility timeout of six timeouts.

    Lambda repeats a throttled run until the visibility timeout, and counts a receive after it.
    """
    for synthesis in (example, platforms, with_dashboard, athena_stack):
        for template in synthesis.templates.values():
            for source in _sources(template):
                queue = _queue(template, source)
                function = template["Resources"][source["FunctionName"]["Ref"]]["Properties"]
                receives = queue["RedrivePolicy"]["maxReceiveCount"]
                seconds = queue["VisibilityTimeout"]
                assert receives >= 5, queue["QueueName"]
                assert receives * seconds >= 5 * 6 * function["Timeout"], queue["QueueName"]
