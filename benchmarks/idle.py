"""The parts of an idle instance with a price, counted in the templates of a default deployment."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_HOURS_MONTH = 730
_MINUTES_MONTH = 60 * _HOURS_MONTH
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}
# Logical ids end with a hash.
_HASH_LENGTH = 8
# A function that finds nothing to do.
_IDLE_SECONDS = 0.1
# Lambda polls a queue with at least 5 pollers, each with a long poll of 20 s.
_POLLS_MINUTE = 15
_WATCH_MINUTES = "SLEEPER_WATCH_MINUTES"

Template = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IdleParts:
    """The parts. `table` are the runs for each table, beside those of the instance in `schedules`.

    Polls are of standard and of FIFO queues. The watch counts messages `counts_month` times and
    reads `metrics_month`. `alarm_metrics` are those of alarms. `endpoint_zones` counts each
    interface endpoint once per zone.
    """

    schedules: "Runs"
    table: "Runs"
    polls_month: float
    fifo_polls_month: float
    counts_month: float
    metrics_month: float
    alarm_metrics: int
    endpoint_zones: int


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of functions in a month, and their memory times their time."""

    count: float
    gb_seconds: float


def idle_parts() -> IdleParts:
    """Returns the parts of a default instance with one table. Synthesises it, which is slow."""
    from tests.infra.synthesis import synthesise

    with TemporaryDirectory() as folder:
        file = Path(folder) / "instance.properties"
        file.write_text("sleeper.id=idle\n")
        return parts_of(list(synthesise(Path(folder) / "out", file).templates.values()))


def parts_of(templates: Sequence[Template]) -> IdleParts:
    """Returns the parts in these templates.

    A rule that sends a message for each table starts a second function for each.
    """
    schedules, table = [], []
    for template in templates:
        for rule in _of_type([template], "AWS::Events::Rule"):
            runs_month = _MINUTES_MONTH / _period_minutes(rule)
            target = rule["Targets"][0]["Arn"]["Fn::GetAtt"][0]
            schedules.append((runs_month, _memory_mb(template, target)))
            handler = target.replace("FanOut", "Handler")[:-_HASH_LENGTH]
            handlers = [name for name in template["Resources"] if name[:-_HASH_LENGTH] == handler]
            if handler != target[:-_HASH_LENGTH]:
                table += [(runs_month, _memory_mb(template, name)) for name in handlers]
    polls = _polls_month(templates)
    endpoints = [
        each
        for each in _of_type(templates, "AWS::EC2::VPCEndpoint")
        if each["VpcEndpointType"] == "Interface"
    ]
    alarms = _of_type(templates, "AWS::CloudWatch::Alarm")
    return IdleParts(
        _sum_runs(schedules),
        _sum_runs(table),
        polls[False],
        polls[True],
        *_watched(templates),
        sum(len(each.get("Metrics", [each])) for each in alarms),
        sum(len(each["SubnetIds"]) for each in endpoints),
    )


def _sum_runs(runs: Sequence[tuple[float, int]]) -> Runs:
    """Adds up runs a month of functions with their memory."""
    gb_seconds = sum(count * _IDLE_SECONDS * memory_mb / 1024 for count, memory_mb in runs)
    return Runs(sum(count for count, _ in runs), gb_seconds)


def _memory_mb(template: Template, function: str) -> int:
    return int(template["Resources"][function]["Properties"].get("MemorySize", 128))


def _polls_month(templates: Sequence[Template]) -> dict[bool, float]:
    """Returns the polls of standard (False) and of FIFO queues.

    Those on demand are polled from when the watch finds messages of a schedule until it runs again.
    """
    polls = {False: 0.0, True: 0.0}
    for template in templates:
        minutes = {
            rule["Targets"][0]["Arn"]["Fn::GetAtt"][0][:-_HASH_LENGTH]: _period_minutes(rule)
            for rule in _of_type([template], "AWS::Events::Rule")
        }
        for name, resource in template["Resources"].items():
            mapping = resource["Properties"]
            if resource["Type"] != "AWS::Lambda::EventSourceMapping":
                continue
            if "Fn::GetAtt" not in mapping["EventSourceArn"]:
                continue  # a stream of another stack
            part = 1.0
            for switched, watch_minutes in _switched(templates):
                if switched.endswith(name[:-_HASH_LENGTH]):
                    fan_out = mapping["FunctionName"]["Ref"].replace("Handler", "FanOut")
                    part = watch_minutes / minutes.get(fan_out[:-_HASH_LENGTH], math.inf)
            queue = template["Resources"][mapping["EventSourceArn"]["Fn::GetAtt"][0]]
            is_fifo = bool(queue["Properties"].get("FifoQueue"))
            polls[is_fifo] += part * _POLLS_MINUTE * _MINUTES_MONTH
    return polls


def _switched(templates: Sequence[Template]) -> Iterator[tuple[str, int]]:
    """Yields the names of mappings on demand, with the period of the watch in minutes.

    A reference is the output of another nested stack, which ends with the mapping's name.
    """
    for variables in _variables(templates):
        match variables.get("SLEEPER_SOURCES"):
            case {"Fn::Join": [_, list(parts)]}:
                for part in parts:
                    if isinstance(part, dict):
                        output = part["Ref"].removesuffix("Ref")
                        yield output[:-_HASH_LENGTH], int(variables[_WATCH_MINUTES])


def _variables(templates: Sequence[Template]) -> Iterator[Mapping[str, Any]]:
    for function in _of_type(templates, "AWS::Lambda::Function"):
        yield function.get("Environment", {}).get("Variables", {})


def _period_minutes(rule: Mapping[str, Any]) -> int:
    match = _RATE.fullmatch(rule["ScheduleExpression"])
    assert match is not None, rule["ScheduleExpression"]
    return int(match[1]) * _MINUTES[match[2]]


def _watched(templates: Sequence[Template]) -> tuple[float, float]:
    """Returns the counts and metrics that the watch reads in a month while nothing fails."""
    queues = sum("RedrivePolicy" in each for each in _of_type(templates, "AWS::SQS::Queue"))
    for variables in _variables(templates):
        if "SLEEPER_WATCHED" in variables:
            watched = json.loads(variables["SLEEPER_WATCHED"])
            schedules = sum(minutes > 0 for minutes in watched["functions"].values())
            throttles = len(watched["throttled"]) + 2 * len(watched["tables"])
            errors = 1
            runs_month = _MINUTES_MONTH / int(variables[_WATCH_MINUTES])
            # Messages and dead letters.
            counts_month = 2 * queues * runs_month
            return counts_month, _HOURS_MONTH * (errors + throttles + schedules)
    return 0, 0


def _of_type(templates: Sequence[Template], kind: str) -> Iterator[dict[str, Any]]:
    for template in templates:
        for each in template["Resources"].values():
            if each["Type"] == kind:
                yield each["Properties"]
