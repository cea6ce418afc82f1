"""Clients of STS, ECS, EventBridge and Secrets Manager: the calls that Sleeper makes.

A started task is only recorded. The world takes it from `Tasks.pending` and runs it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from simulation.services.paginator import Paginator
from simulation.services.requests import Exceptions, Requests, client_error

T = TypeVar("T")

ACCOUNT = "000000000000"
_TASKS_PER_REQUEST = 10
# The part of tasks for which ECS has no capacity.
_NO_CAPACITY = 0.02


@dataclass(frozen=True, slots=True)
class Task:
    """A task that ECS was asked to run."""

    arn: str
    definition: str

    @property
    def family(self) -> str:
        """The definition's name without its ARN prefix and revision."""
        return self.definition.rpartition("/")[2].partition(":")[0]


@dataclass(slots=True)
class Tasks:
    """The tasks of ECS: those that run, and of these the ones that the world has yet to start."""

    running: dict[str, Task] = field(default_factory=dict)
    pending: deque[Task] = field(default_factory=deque)
    _started: int = 0

    def start(self, definition: str) -> Task:
        """Starts a task."""
        self._started += 1
        task = Task(f"arn:aws:ecs:eu-west-2:{ACCOUNT}:task/{self._started:08d}", definition)
        self.running[task.arn] = task
        self.pending.append(task)
        return task

    def stop(self, arn: str) -> None:
        """Ends a task."""
        del self.running[arn]


@dataclass(slots=True)
class Control:
    """The state of these services: tasks, enabled rules by name, secrets by name or ARN."""

    tasks: Tasks = field(default_factory=Tasks)
    rules: dict[str, bool] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)


class ControlClient:
    """A client of one of the services, which has the methods of all."""

    def __init__(self, control: Control, requests: Requests) -> None:
        self.exceptions = Exceptions()
        self._control = control
        self._requests = requests

    # STS

    def get_caller_identity(self) -> dict[str, Any]:
        """Returns the account."""
        return self._send("get_caller_identity", "", lambda: {"Account": ACCOUNT})

    # ECS

    def run_task(self, **request: Any) -> dict[str, Any]:
        """Starts tasks, or fewer if there is no capacity."""
        count = request.get("count", 1)
        if not 1 <= count <= _TASKS_PER_REQUEST:
            raise client_error("InvalidParameterException", "count out of range", "RunTask")

        def effect() -> dict[str, Any]:
            tasks, failures = [], []
            for _ in range(count):
                if self._requests.calls.choose(_NO_CAPACITY):
                    failures.append({"reason": "Capacity is unavailable at this time"})
                else:
                    task = self._control.tasks.start(request["taskDefinition"])
                    tasks.append({"taskArn": task.arn, "taskDefinitionArn": task.definition})
            return {"tasks": tasks, "failures": failures}

        return self._send("run_task", request["taskDefinition"], effect)

    def list_tasks(self, **request: Any) -> dict[str, Any]:
        """Returns the ARNs of running tasks of a family."""

        def effect() -> dict[str, Any]:
            running = self._control.tasks.running.values()
            return {"taskArns": [t.arn for t in running if t.family == request["family"]]}

        return self._send("list_tasks", request["family"], effect)

    def get_paginator(self, operation: str) -> Paginator:
        """Returns the paginator of `list_tasks`."""
        return Paginator(getattr(self, operation), "nextToken", "nextToken", "maxResults")

    # EventBridge

    def enable_rule(self, **request: Any) -> dict[str, Any]:
        """Enables a rule."""
        return self._switch("enable_rule", request["Name"], True)

    def disable_rule(self, **request: Any) -> dict[str, Any]:
        """Disables a rule."""
        return self._switch("disable_rule", request["Name"], False)

    def _switch(self, operation: str, name: str, is_on: bool) -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            if name not in self._control.rules:
                message = f"Rule {name} does not exist on EventBus default."
                raise client_error("ResourceNotFoundException", message, operation)
            self._control.rules[name] = is_on
            return {}

        return self._send(operation, name, effect)

    # Secrets Manager

    def get_secret_value(self, **request: Any) -> dict[str, Any]:
        """Returns a secret."""
        name = request["SecretId"]

        def effect() -> dict[str, Any]:
            if name not in self._control.secrets:
                message = "Secrets Manager can't find the specified secret."
                raise client_error("ResourceNotFoundException", message, "GetSecretValue")
            return {"Name": name, "SecretString": self._control.secrets[name]}

        return self._send("get_secret_value", name, effect)

    def _send(self, operation: str, target: str, effect: Callable[[], T]) -> T:
        return self._requests.send(operation, target, effect)
