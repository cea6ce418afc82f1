"""A function that a rule starts every so often."""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_

from sleeper.properties.deployed import SCHEDULE_RULES
from stacks.deployment import Deployment

_SOON_MINUTES = 5
# What Lambda takes as the most.
_RETRIES_MAX = 2
_KEPT_MINUTES_MAX = 360


def start_every(
    function: lambda_.Function, deployment: Deployment, minutes: int, name: str
) -> None:
    """Makes the rule, and records it so that `sleeper pause` finds it.

    A run that failed is tried again unless the next one comes soon. One that had to wait for the
    account's concurrency is dropped when the next is due: else Lambda keeps them for hours, and
    hundreds run at once in the end, each of which may start tasks.
    """
    full_name = deployment.name(name)
    period = cdk.Duration.minutes(minutes)
    retries = 0 if minutes <= _SOON_MINUTES else _RETRIES_MAX
    age_max = period if minutes <= _KEPT_MINUTES_MAX else cdk.Duration.minutes(_KEPT_MINUTES_MAX)
    function.configure_async_invoke(retry_attempts=retries, max_event_age=age_max)
    events.Rule(
        function,
        "Rule",
        rule_name=full_name,
        description=f"starts {function.node.id} of {deployment.id}",
        schedule=events.Schedule.rate(period),
        targets=[
            targets.LambdaFunction(function, retry_attempts=retries, max_event_age=age_max),
        ],
    )
    known = deployment.deployed.get(SCHEDULE_RULES.name)
    deployment.deployed[SCHEDULE_RULES.name] = f"{known},{full_name}" if known else full_name
