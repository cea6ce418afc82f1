"""An alarm of the instance, which the topic of alarms receives."""

from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.properties.deployed import SCHEDULE_ALARMS
from stacks.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm if the metric reaches the threshold for a number of its periods.

    With `is_minimum` it is one if the metric is below the threshold. With `on_missing_data` it is
    sent too if the metric has no values any more, but not before it has its first. One that
    `is_of_schedule` fires if no schedule runs, so its actions
    are off while the instance is paused.
    """

    name: str
    description: str
    metric: cloudwatch.IMetric
    threshold: int = 1
    periods: int = 1
    is_minimum: bool = False
    on_missing_data: bool = False
    is_of_schedule: bool = False


def add_alarm(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    topic: sns.ITopic,
    alarm: Alarm,
) -> None:
    """Creates the alarm, and records it for the dashboard."""
    comparisons, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
    full_name = deployment.name(alarm.name)
    made = cloudwatch.Alarm(
        scope,
        construct_id,
        alarm_name=full_name,
        alarm_description=f"{alarm.description}: see docs/alarms.md#{alarm.name}",
        metric=alarm.metric,
        threshold=alarm.threshold,
        evaluation_periods=alarm.periods,
        comparison_operator=(
            comparisons.LESS_THAN_THRESHOLD
            if alarm.is_minimum
            else comparisons.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        actions_enabled=not (alarm.is_of_schedule and deployment.is_paused),
        treat_missing_data=missing.MISSING if alarm.on_missing_data else missing.NOT_BREACHING,
    )
    made.add_alarm_action(actions.SnsAction(topic))
    if alarm.on_missing_data:
        made.add_insufficient_data_action(actions.SnsAction(topic))
    deployment.alarms.append(full_name)
    if alarm.is_of_schedule:
        deployment.record_name(SCHEDULE_ALARMS, full_name)
