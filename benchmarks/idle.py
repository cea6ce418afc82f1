"""The parts of an idle instance with a price, counted in the templates of a default deployment."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_MINUTES_MONTH = 730 * 60
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}
# A function that finds nothing to do.
_IDLE_SECONDS = 0.1
# Lambda polls a queue with at least 5 pollers, each with a long poll of 20 s.
_POLLS_MINUTE = 15


Template = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IdleParts:
    """The parts. `endpoint_zones` counts each interface endpoint once per zone."""

    invocations_month: float
    gb_seconds_month: float
    polls_month: float
    alarms: int
    endpoint_zones: int


def idle_parts() -> IdleParts:
    """Returns the parts of a default instance with one table. Synthesises it, which is slow."""
    from tests.infra.synthesis import synthesise

    with TemporaryDirectory() as folder:
        file = Path(folder) / "instance.properties"
        file.write_text("sleeper.id=idle\n")
        return parts_of(list(synthesise(Path(folder) / "out", file).templates.values()))


def parts_of(templates: Sequence[Template]) -> IdleParts:
    """Returns the parts in these templates.

    A rule that sends a message for each table starts two functions, the table's included.
    """
    invocations = gb_seconds = 0.0
    for memory_mb, runs_month in _scheduled(templates):
        invocations += runs_month
        gb_seconds += runs_month * _IDLE_SECONDS * memory_mb / 1024
    queues = [
        each
        for each in _of_type(templates, "AWS::Lambda::EventSourceMapping")
        if "sqs" in json.dumps(each).lower() or "queue" in json.dumps(each).lower()
    ]
    endpoints = [
        each
        for each in _of_type(templates, "AWS::EC2::VPCEndpoint")
        if each["VpcEndpointType"] == "Interface"
    ]
    return IdleParts(
        invocations,
        gb_seconds,
        len(queues) * _POLLS_MINUTE * _MINUTES_MONTH,
        len(list(_of_type(templates, "AWS::CloudWatch::Alarm"))),
        sum(len(each["SubnetIds"]) for each in endpoints),
    )


def _scheduled(templates: Sequence[Template]) -> Iterator[tuple[int, float]]:
    """Yields the memory of each scheduled function and its runs a month."""
    for template in templates:
        resources = template["Resources"]
        mapped = [r for r in resources.values() if r["Type"] == "AWS::Lambda::EventSourceMapping"]
        for rule in (
            r["Properties"] for r in resources.values() if r["Type"] == "AWS::Events::Rule"
        ):
            match = _RATE.fullmatch(rule["ScheduleExpression"])
            if match is None:
                continue
            runs_month = _MINUTES_MONTH / (int(match[1]) * _MINUTES[match[2]])
            target = rule["Targets"][0]["Arn"]["Fn::GetAtt"][0]
            memory_mb = int(resources[target]["Properties"].get("MemorySize", 128))
            has_tables = "FanOut" in target and bool(mapped)
            for _ in range(2 if has_tables else 1):
                yield memory_mb, runs_month


def _of_type(templates: Sequence[Template], kind: str) -> Iterator[dict[str, Any]]:
    for template in templates:
        for each in template["Resources"].values():
            if each["Type"] == kind:
                yield each["Properties"]
