"""The rules of the product, read from the templates of a deployment and from its properties.

Nothing here is a figure of the simulation: a changed default, property or construct changes the
result. Constants that no template has are read from their modules by reference.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sleeper.properties.declaration import Property
from sleeper.properties.instance import DEFAULT_STACKS, ID, OPTIONAL_STACKS, OptionalStack
from sleeper.properties.values import InstanceProperties, instance_properties
from sleeper.retries import Backoff
from sleeper.systems import load, queues
from tests.infra.synthesis import Resource, synthesise

_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
_PREFIX = "sleeper-scale-"


@dataclass(frozen=True, slots=True)
class FunctionRule:
    """A function. `reserved` is its reserved concurrency, which is also its limit."""

    name: str
    memory_mb: int
    timeout_seconds: int
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class QueueRule:
    """A queue, and how its function receives it, if one does.

    `at_once_max` limits the concurrent runs that the queue starts.
    """

    name: str
    fifo: bool
    visibility_seconds: int
    receives_max: int
    receiver: FunctionRule | None = None
    batch: int = 1
    at_once_max: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """A rule of EventBridge: its period, and how long a run may wait until it is dropped."""

    name: str
    period_seconds: int
    age_seconds_max: int
    function: FunctionRule


@dataclass(frozen=True, slots=True)
class TaskRule:
    """A kind of task, and the largest number of its tasks."""

    kind: str
    cpus: float
    memory_gib: float
    count_max: int


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules. Queues and tasks have the names of the product's code."""

    queues: Mapping[str, QueueRule]
    schedules: Mapping[str, ScheduleRule]
    tasks: Mapping[str, TaskRule]
    properties: InstanceProperties
    alarms: int
    rounds_waiting_max: int
    conflict_backoff: Backoff
    settle_backoff: Backoff
    jobs_per_dispatch: int
    threads_reading: int

    def get(self, declaration: Property[Any]) -> Any:
        """Returns the value of a property of the instance."""
        return self.properties.get(declaration)


def read_rules(values: Mapping[str, str] | None = None) -> Rules:
    """Returns the rules of an instance with these properties. Synthesises it, which is slow.

    It has the metrics of tables besides the default parts, because their price grows with tables.
    """
    parts = OPTIONAL_STACKS.kind.format((*DEFAULT_STACKS, OptionalStack.TABLE_METRICS))
    values = {ID.name: "scale", OPTIONAL_STACKS.name: parts, **(values or {})}
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    with TemporaryDirectory() as folder:
        file = Path(folder) / "instance.properties"
        file.write_text(text)
        templates = synthesise(Path(folder) / "out", file).templates
    resources = _Resources([template["Resources"] for template in templates.values()])
    properties = instance_properties(values)
    return Rules(
        queues=resources.queues(),
        schedules=resources.schedules(),
        tasks=resources.tasks(properties),
        properties=properties,
        alarms=len(list(resources.of_type("AWS::CloudWatch::Alarm"))),
        rounds_waiting_max=load("sleeper.workers.schedule:_ROUNDS_WAITING_MAX"),
        conflict_backoff=load("sleeper.statestore.entry_commit:_CONFLICT_BACKOFF"),
        settle_backoff=load("sleeper.runs.commit:_BACKOFF"),
        jobs_per_dispatch=load("sleeper.compaction.plan:_JOBS_PER_BATCH"),
        threads_reading=load("sleeper.datafiles.remote.extracts:_MERGE_REQUEST_THREADS"),
    )


class _Resources:
    """The resources of templates, each of which refers to others of its own by logical id."""

    def __init__(self, templates: list[dict[str, Resource]]) -> None:
        self._templates = templates

    def of_type(self, kind: str) -> Iterator[tuple[dict[str, Resource], dict[str, Any]]]:
        """Yields the template and the properties of each resource of the type."""
        for template in self._templates:
            for resource in template.values():
                if resource["Type"] == kind:
                    yield template, resource["Properties"]

    def queues(self) -> dict[str, QueueRule]:
        mappings: dict[str, tuple[dict[str, Resource], dict[str, Any]]] = {}
        for template, mapping in self.of_type("AWS::Lambda::EventSourceMapping"):
            source = mapping["EventSourceArn"]
            if "Fn::GetAtt" in source and source["Fn::GetAtt"][0] in template:
                queue = template[source["Fn::GetAtt"][0]]["Properties"]["QueueName"]
                mappings[queue] = template, mapping
        rules = {}
        deployed = {f"{_PREFIX}{each.deployed_name}": each.name for each in queues().values()}
        for _, queue in self.of_type("AWS::SQS::Queue"):
            name = deployed.get(queue.get("QueueName", ""))
            if name is not None:
                rules[name] = _queue_rule(name, queue, mappings.get(queue["QueueName"]))
        return rules

    def schedules(self) -> dict[str, ScheduleRule]:
        rules = {}
        for template, rule in self.of_type("AWS::Events::Rule"):
            match = _RATE.fullmatch(rule["ScheduleExpression"])
            if match is None:
                continue
            name = str(rule["Name"]).removeprefix(_PREFIX)
            target = rule["Targets"][0]
            function = _function_rule(template[target["Arn"]["Fn::GetAtt"][0]]["Properties"])
            period = int(match[1]) * _SECONDS[match[2]]
            age = target["RetryPolicy"]["MaximumEventAgeInSeconds"]
            rules[name] = ScheduleRule(name, period, age, function)
        return rules

    def tasks(self, properties: InstanceProperties) -> dict[str, TaskRule]:
        rules = {}
        for _, definition in self.of_type("AWS::ECS::TaskDefinition"):
            kind = str(definition["Family"]).removeprefix(_PREFIX).removesuffix("-task")
            tasks = queues()[kind].tasks if kind in queues() else None
            if tasks is not None:
                cpus, memory = int(definition["Cpu"]) / 1024, int(definition["Memory"]) / 1024
                rules[kind] = TaskRule(kind, cpus, memory, properties.get(load(tasks.count_max)))
        return rules


def _queue_rule(
    name: str,
    queue: dict[str, Any],
    mapping: tuple[dict[str, Resource], dict[str, Any]] | None,
) -> QueueRule:
    fifo = bool(queue.get("FifoQueue"))
    visibility, receives = queue["VisibilityTimeout"], queue["RedrivePolicy"]["maxReceiveCount"]
    if mapping is None:
        return QueueRule(name, fifo, visibility, receives)
    template, source = mapping
    function = template[source["FunctionName"]["Ref"]]["Properties"]
    at_once = source.get("ScalingConfig", {}).get("MaximumConcurrency")
    receiver = _function_rule(function)
    return QueueRule(name, fifo, visibility, receives, receiver, source["BatchSize"], at_once)


def _function_rule(function: dict[str, Any]) -> FunctionRule:
    return FunctionRule(
        str(function["FunctionName"]).removeprefix(_PREFIX),
        function["MemorySize"],
        function["Timeout"],
        function.get("ReservedConcurrentExecutions"),
    )


def describe(rules: Rules) -> str:
    """Returns the rules as JSON, for a look."""
    parts = {
        "queues": {n: str(r) for n, r in rules.queues.items()},
        "schedules": {n: str(r) for n, r in rules.schedules.items()},
        "tasks": {n: str(r) for n, r in rules.tasks.items()},
    }
    return json.dumps(parts, indent=1)
