"""Reads what starts the functions of an instance from the templates of its deployment.

`functions.json` has the result for all systems that need no cluster, so that a simulation starts
without a synthesis, which takes seconds. A test compares the two.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Resource = Mapping[str, Any]

_MINUTES = {"minute": 1, "hour": 60, "day": 1440}
_OWN_VARIABLES = ("SLEEPER_OPERATION", "SLEEPER_TASK_KIND")
# The watch changes nothing, and reads metrics, which are not simulated.
_OMITTED = "watch_instance"


def read_functions(templates: Mapping[str, Resource], prefix: str) -> dict[str, Any]:
    """Returns the queues, the sources of messages and the rules of an instance's templates.

    `prefix` begins the names of the instance's resources.
    """
    queues: dict[str, Any] = {}
    sources: list[dict[str, Any]] = []
    rules: list[dict[str, Any]] = []
    for resources in (template["Resources"] for template in templates.values()):
        queues |= _queues(resources, prefix)
        sources += _sources(resources, prefix)
        rules += _rules(resources, prefix)
    return {
        "queues": dict(sorted(queues.items())),
        "sources": sorted(sources, key=lambda each: str(each["queue"])),
        "rules": sorted(rules, key=lambda each: str(each["name"])),
    }


def _queues(resources: Mapping[str, Resource], prefix: str) -> dict[str, Any]:
    return {
        properties["QueueName"].removeprefix(prefix): {
            "visibility_seconds": properties["VisibilityTimeout"],
            "receives_max": properties["RedrivePolicy"]["maxReceiveCount"],
        }
        for properties in _of_type(resources, "AWS::SQS::Queue")
        if "RedrivePolicy" in properties
    }


def _sources(resources: Mapping[str, Resource], prefix: str) -> Iterator[dict[str, Any]]:
    for properties in _of_type(resources, "AWS::Lambda::EventSourceMapping"):
        source = properties["EventSourceArn"]
        if "Fn::GetAtt" not in source:
            continue  # a stream
        queue = resources[source["Fn::GetAtt"][0]]["Properties"]
        function = resources[properties["FunctionName"]["Ref"]]["Properties"]
        scaling = properties.get("ScalingConfig", {})
        yield {
            "queue": queue["QueueName"].removeprefix(prefix),
            "batch": properties["BatchSize"],
            "at_once_max": scaling.get("MaximumConcurrency"),
            "function": _function(function),
        }


def _rules(resources: Mapping[str, Resource], prefix: str) -> Iterator[dict[str, Any]]:
    for properties in _of_type(resources, "AWS::Events::Rule"):
        (target,) = properties["Targets"]
        function = resources[target["Arn"]["Fn::GetAtt"][0]]["Properties"]
        if _function(function)["handler"] == _OMITTED:
            continue
        yield {
            "name": properties["Name"].removeprefix(prefix),
            "minutes": _minutes(properties["ScheduleExpression"]),
            "retries": target["RetryPolicy"]["MaximumRetryAttempts"],
            "age_seconds_max": target["RetryPolicy"]["MaximumEventAgeInSeconds"],
            "function": _function(function),
        }


def _of_type(resources: Mapping[str, Resource], kind: str) -> Iterator[Resource]:
    return (each["Properties"] for each in resources.values() if each["Type"] == kind)


def _function(properties: Resource) -> dict[str, Any]:
    command = properties.get("Handler") or properties["ImageConfig"]["Command"][0]
    variables = properties["Environment"]["Variables"]
    return {
        "handler": command.split(".")[1],
        "timeout_seconds": properties["Timeout"],
        "environment": {n: v for n, v in variables.items() if n in _OWN_VARIABLES},
    }


def _minutes(schedule: str) -> int:
    match = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", schedule)
    assert match is not None, schedule
    return int(match[1]) * _MINUTES[match[2]]
