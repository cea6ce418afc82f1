"""Records what roles do in ministack, and what their policies let them do.

Run by ministack's own Python. The file has a line of JSON for each of these, once:

    {"role": ROLE, "made": [STACK, LOGICAL ID]}       a role that a template made
    {"role": ROLE, "granted": [ACTION, RESOURCE]}     what a statement allows
    {"role": ROLE, "used": [ACTION, RESOURCE]}        a granted one that allowed a call
    {"role": ROLE, "refused": [ACTION, RESOURCE]}     a call that none of its statements allows

The emulator does not know which attributes a request to DynamoDB writes, which is the value of a
condition key on AWS, so this adds them.
"""

import importlib
import json
import re
import threading
from itertools import product
from pathlib import Path
from typing import Any

_ASSUMED = re.compile(r"^arn:aws:sts::\d+:assumed-role/([^/]+)/")
_WRITES = ("Put", "Update", "Delete", "ConditionCheck")


def record_calls(file: Path) -> None:
    """Records from now on."""
    recorder = _Recorder(file)
    evaluator: Any = importlib.import_module("ministack.core.iam_evaluator")
    evaluate, resolve_principal = evaluator.evaluate, evaluator.resolve_principal

    def resolve_marked(*arguments: Any) -> Any:
        principal = resolve_principal(*arguments)
        if getattr(principal, "policies", None) is not None:
            principal.policies = _RolePolicies(principal.policies)
        return principal

    def evaluate_recorded(context: Any, policies: Any, *limits: Any) -> Any:
        result = evaluate(context, policies, *limits)
        match = _ASSUMED.match(context.principal_arn)
        # Policies of buckets and queues are evaluated too.
        if match is not None and isinstance(policies, _RolePolicies):
            statements = [each for policy in policies for each in policy if each.effect == "Allow"]
            recorder.add_call(match[1], context, statements, result.decision == "Allow", evaluator)
        return result

    evaluator.resolve_principal = resolve_marked
    evaluator.evaluate = evaluate_recorded
    _record_roles(recorder)


class _RolePolicies(list[Any]):
    """The policies of a principal."""


def name_written_attributes() -> None:
    """Adds the attributes that requests to DynamoDB write to their condition keys."""
    actions: Any = importlib.import_module("ministack.core.iam_actions")
    original = actions.dynamodb_service_context

    def context(body: bytes) -> dict[str, Any]:
        keys: dict[str, Any] = original(body)
        written = sorted(_written(json.loads(body or b"{}")))
        return {**keys, "dynamodb:Attributes": written} if written else keys

    actions.dynamodb_service_context = context


class _Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._facts: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()

    def add(self, role: str, kind: str, *fact: str) -> None:
        key = (role, kind, *fact)
        with self._lock:
            if key not in self._facts:
                self._facts.add(key)
                with self._file.open("a") as file:
                    file.write(json.dumps({"role": role, kind: fact}) + "\n")

    def add_call(
        self, role: str, context: Any, statements: list[Any], is_allowed: bool, evaluator: Any
    ) -> None:
        for statement in statements:
            for action, resource in product(statement.actions, statement.resources):
                self.add(role, "granted", action, resource)
        if not is_allowed:
            # A function that runs while its stack is deleted goes on after the policy of its role.
            if statements:
                self.add(role, "refused", context.action, context.resource_arn)
            return
        for statement in statements:
            for action, resource in product(statement.actions, statement.resources):
                if (
                    evaluator.fnmatch_iam(context.action, action)
                    and evaluator.fnmatch_iam_cs(context.resource_arn, resource)
                    and evaluator._conditions_met(statement.conditions, context)
                ):
                    self.add(role, "used", action, resource)


def _record_roles(recorder: _Recorder) -> None:
    provisioners: Any = importlib.import_module("ministack.services.cloudformation.provisioners")
    handlers = provisioners._RESOURCE_HANDLERS["AWS::IAM::Role"]
    original = handlers["create"]

    def create(logical_id: str, properties: Any, stack_name: str) -> Any:
        result = original(logical_id, properties, stack_name)
        recorder.add(result[0], "made", stack_name, logical_id)
        return result

    handlers["create"] = create


def _written(request: Any) -> set[str]:
    """Returns the attributes that a request names in what it writes, including keys."""
    writes = [request] if {"Item", "UpdateExpression"} & set(request) else []
    for item in request.get("TransactItems", ()):
        writes += [item[kind] for kind in _WRITES if kind in item]
    names: set[str] = set()
    for write in writes:
        names |= {*write.get("Item", ()), *write.get("Key", ())}
        names |= set(write.get("ExpressionAttributeNames", {}).values())
    for requests in request.get("RequestItems", {}).values():
        for each in requests if isinstance(requests, list) else ():
            names |= set(each.get("PutRequest", {}).get("Item", ()))
            names |= set(each.get("DeleteRequest", {}).get("Key", ()))
    return names
