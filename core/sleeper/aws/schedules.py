"""The schedules of an instance: the rules of EventBridge that start its background work.

A *paused* instance has disabled rules. Its *alarms of schedules* would fire because nothing runs,
so their actions are off until it is resumed.
"""

from collections.abc import Sequence

from sleeper.aws.clients import aws_client
from sleeper.aws.errors import translate_errors
from sleeper.properties.deployed import SCHEDULE_ALARMS, SCHEDULE_RULES
from sleeper.properties.values import InstanceProperties


def switch_rules(properties: InstanceProperties, on: bool) -> tuple[str, ...]:
    """Resumes or pauses the schedules. Returns the names of their rules."""
    rules, alarms = properties.get(SCHEDULE_RULES), properties.get(SCHEDULE_ALARMS)
    if not on:
        _switch_alarms(alarms, on)
    events = aws_client("events")
    for rule in rules:
        name = rule.rpartition("/")[2]  # a rule is listed by its name or its ARN
        with translate_errors(f"EventBridge rule {name!r}"):
            (events.enable_rule if on else events.disable_rule)(Name=name)
    if on:
        _switch_alarms(alarms, on)
    return rules


def _switch_alarms(names: Sequence[str], on: bool) -> None:
    if not names:  # an older release deployed the instance
        return
    client = aws_client("cloudwatch")
    with translate_errors("the actions of alarms of schedules"):
        switch = client.enable_alarm_actions if on else client.disable_alarm_actions
        switch(AlarmNames=list(names))
