"""What starts the functions of a simulated instance: messages of queues, and schedules.

A *source* gives the messages of a queue to a function. A *rule* invokes one on a schedule: an
*invocation* waits until a container takes it. The caller steps both, each run in a process of its
world: `deliver_once(source, instance)` and `run(invocation, instance)`. Here is no thread, and the
real handlers run in the caller's. A run that reaches its time limit ends with its process.

A function that ends with an error, or not at all, leaves its messages in flight until their
visibility timeout, as Lambda does. Of a run that reports failures, the other messages are deleted.
Lambda repeats an invocation that failed, and runs some twice.
Not simulated: streams of DynamoDB, and the function that watches the instance.
"""

import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simulation.services.control import Task
from simulation.services.world import Services
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.runs.remaining_time import lambda_context

DECLARED: Mapping[str, Any] = json.loads(Path(__file__).with_name("functions.json").read_text())
"""Queues, sources and rules by the names without the instance's prefix. See `templates`."""

_TASK = "-task"
# The part of invocations that Lambda runs twice.
_TWICE = 0.01
_RETRY_MS = 60_000

TimeLimit = Callable[[float], AbstractContextManager[None]]
"""Makes a context that ends the calling process if it is not left in so many seconds."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function: `lambdas/<handler>/handler.py`, its timeout and its own variables."""

    handler: str
    timeout_seconds: int
    environment: Mapping[str, str]

    def run(self, instance: Instance, event: Mapping[str, Any], now_ms: Callable[[], int]) -> Any:
        """Runs the handler with an open instance, and returns its response."""
        module = importlib.import_module(f"lambdas.{self.handler}.handler")
        # A handler reads its variables first, before another thread of the world goes on.
        os.environ.update(self.environment)
        with lambda_context(_Context(now_ms, now_ms() + self.timeout_seconds * 1000)):
            return inspect.unwrap(module.handler)(instance, event)


@dataclass(frozen=True, slots=True)
class _Context:
    now_ms: Callable[[], int]
    end_ms: int

    def get_remaining_time_in_millis(self) -> int:
        """Returns the time until Lambda ends the run."""
        return self.end_ms - self.now_ms()


@dataclass(slots=True)
class Source:
    """A queue whose messages a function gets, `batch` at once in at most `at_once_max` runs."""

    queue: str
    batch: int
    at_once_max: int | None
    function: Function
    running: int = 0


@dataclass(slots=True)
class Rule:
    """A rule that invokes a function every `minutes`, and again if that fails.

    Lambda drops an invocation that is older than `age_seconds_max`.
    """

    name: str
    minutes: int
    retries: int
    age_seconds_max: int
    function: Function
    started_ms: int


@dataclass(frozen=True, slots=True)
class Invocation:
    """A run of a rule's function that Lambda has accepted, from `due_ms` on."""

    rule: Rule
    accepted_ms: int
    due_ms: int
    failures: int = 0


@dataclass(slots=True)
class Functions:
    """The functions of an instance whose resources have a prefix such as `sleeper-x-`.

    Rules have periods of at least `period_ms_min`, so that a long history has fewer runs.
    """

    services: Services
    prefix: str
    limit: TimeLimit
    period_ms_min: int = 0
    sources: Sequence[Source] = field(init=False)
    rules: Sequence[Rule] = field(init=False)
    _invocations: list[Invocation] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Enables all rules, which first start after their period."""
        self.sources = [
            Source(**{**each, "function": Function(**each["function"])})
            for each in DECLARED["sources"]
        ]
        self.rules = [
            Rule(**{**each, "function": Function(**each["function"]), "started_ms": self.now_ms()})
            for each in DECLARED["rules"]
        ]
        for rule in self.rules:
            self.services.control.rules[self.prefix + rule.name] = True

    def now_ms(self) -> int:
        """Returns the time of AWS."""
        return self.services.calls.now_ms()

    def has_messages(self, source: Source) -> bool:
        """Returns whether `deliver_once` would start a run."""
        if source.at_once_max is not None and source.running >= source.at_once_max:
            return False
        queue = self.services.sqs.queues.get(self.prefix + source.queue)
        return queue is not None and queue.has_visible(self.now_ms())

    def deliver_once(self, source: Source, instance: Instance) -> int:
        """Gives a batch of messages to the function. Returns their number."""
        if not self.has_messages(source):
            return 0
        queue = self.services.sqs.queues[self.prefix + source.queue]
        client = self.services.client("sqs")
        source.running += 1
        try:
            messages = client.receive_message(
                QueueUrl=queue.url,
                MaxNumberOfMessages=source.batch,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", [])
            if messages:
                event = {"Records": [_record(each, queue.arn) for each in messages]}
                with self.limit(source.function.timeout_seconds):
                    response = source.function.run(instance, event, self.now_ms)
                self._delete(client, queue.url, messages, response)
        finally:
            source.running -= 1
        return len(messages)

    def take_invocation(self) -> Invocation | None:
        """Returns an invocation that is due, which the caller runs, or None."""
        now_ms = self.now_ms()
        self._invoke_due_rules(now_ms)
        self._invocations = [
            each
            for each in self._invocations
            if now_ms - each.accepted_ms <= each.rule.age_seconds_max * 1000
        ]
        due = next((each for each in self._invocations if each.due_ms <= now_ms), None)
        if due is not None:
            self._invocations.remove(due)
        return due

    def _invoke_due_rules(self, now_ms: int) -> None:
        for rule in self.rules:
            if now_ms - rule.started_ms < max(rule.minutes * 60_000, self.period_ms_min):
                continue
            rule.started_ms = now_ms
            if self.services.control.rules[self.prefix + rule.name]:
                count = 2 if self.services.calls.choose(_TWICE) else 1
                self._invocations += [Invocation(rule, now_ms, now_ms)] * count

    def run(self, invocation: Invocation, instance: Instance) -> Any:
        """Runs an invocation, and returns its response. Lambda repeats one that failed."""
        function = invocation.rule.function
        try:
            with self.limit(function.timeout_seconds):
                return function.run(instance, {}, self.now_ms)
        except BaseException:  # also the end of the container
            failures = invocation.failures + 1
            if failures <= invocation.rule.retries:
                due_ms = self.now_ms() + failures * _RETRY_MS
                again = replace(invocation, due_ms=due_ms, failures=failures)
                self._invocations.append(again)
            raise

    def task_kind(self, task: Task) -> JobKind:
        """Returns the kind of jobs for which `sleeper.workers.task.run_task` runs."""
        return JobKind(task.family.removeprefix(self.prefix).removesuffix(_TASK))

    def _delete(
        self, client: Any, url: str, messages: Sequence[Mapping[str, Any]], response: Any
    ) -> None:
        """Deletes the messages that did not fail: none if a failed one is not of the batch."""
        failures = (response or {}).get("batchItemFailures", ())
        failed = {each["itemIdentifier"] for each in failures}
        ids = {each["MessageId"] for each in messages}
        entries = [
            {"Id": str(position), "ReceiptHandle": each["ReceiptHandle"]}
            for position, each in enumerate(messages)
            if each["MessageId"] not in failed
        ]
        if entries and failed <= ids:
            client.delete_message_batch(QueueUrl=url, Entries=entries)


def _record(message: Mapping[str, Any], arn: str) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "eu-west-2",
    }
