"""A function that a rule starts every so often."""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_

from sleeper.properties.deployed import SCHEDULE_RULES
from stacks.deployment import Deployment


def start_every(
    function: lambda_.Function, deployment: Deployment, minutes: int, name: str
) -> None:
    """Makes the rule, and records it so that `sleeper pause` finds it.

    A run that failed is not tried again: the next one comes soon.
    """
    full_name = deployment.name(name)
    events.Rule(
        function,
        "Rule",
        rule_name=full_name,
        description=f"starts {function.node.id} of {deployment.id}",
        schedule=events.Schedule.rate(cdk.Duration.minutes(minutes)),
        targets=[targets.LambdaFunction(function, retry_attempts=0)],
    )
    known = deployment.deployed.get(SCHEDULE_RULES.name)
    deployment.deployed[SCHEDULE_RULES.name] = f"{known},{full_name}" if known else full_name
