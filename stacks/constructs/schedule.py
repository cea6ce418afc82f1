"""A rule that starts a function on a schedule."""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_

from sleeper.properties.deployed import SCHEDULE_RULES
from stacks.deployment import Deployment

_SOON_MINUTES = 5
# The maximum that Lambda accepts.
_RETRIES_MAX = 2
_KEPT_MINUTES_MAX = 360


def start_every(
    function: lambda_.Function,
    deployment: Deployment,
    minutes: int,
    name: str,
    event: Mapping[str, object] | None = None,
) -> None:
    """Creates the rule, and records it for `sleeper pause`. `event` replaces that of the schedule.

    A failed run is retried unless the next is due soon. A throttled run is dropped when the next
    one is due. Otherwise Lambda would keep throttled runs for hours and then run hundreds at once,
    each of which can start tasks.
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
        enabled=not deployment.is_paused,
        description=f"starts {function.node.id} of {deployment.id}",
        schedule=events.Schedule.rate(period),
        targets=[
            targets.LambdaFunction(
                function,
                retry_attempts=retries,
                max_event_age=age_max,
                event=None if event is None else events.RuleTargetInput.from_object(event),
            ),
        ],
    )
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    name_of_function = (resource.function_name or "").removeprefix(deployment.name(""))
    deployment.schedules[name_of_function] = minutes
    deployment.record_name(SCHEDULE_RULES, full_name)
