"""IAM policies, as far as the stacks use them: whether statements allow a *call*.

A call is an action on a resource, with the values of the condition keys that it has.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_WILDCARDS = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True)
class Call:
    """Names of condition keys are in lower case."""

    action: str
    resource: str
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a role's policy."""

    effect: str
    actions: Sequence[str]
    resources: Sequence[str]
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def matches(self, call: Call) -> bool:
        """Returns whether the statement is about the call."""
        return (
            any(is_like(call.action, each) for each in self.actions)
            and any(is_like(call.resource, each) for each in self.resources)
            and all(
                _holds(operator, as_values(values), call.keys.get(key.lower()))
                for operator, wanted in self.conditions.items()
                for key, values in wanted.items()
            )
        )


def allows(statements: Iterable[Statement], call: Call) -> bool:
    """Returns whether a statement allows the call, and none denies it."""
    effects = {each.effect for each in statements if each.matches(call)}
    return effects == {"Allow"}


def as_values(value: Any) -> list[Any]:
    """Wraps a single value, which a policy accepts as a list of one."""
    return value if isinstance(value, list) else [value]


def is_like(text: str, pattern: str) -> bool:
    """Returns whether the text matches a pattern with `*` and `?`."""
    return _pattern(pattern).fullmatch(text) is not None


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_WILDCARDS.get(c) or re.escape(c) for c in pattern), re.DOTALL)


def _holds(operator: str, values: Sequence[str], actual: Sequence[str] | None) -> bool:
    quantifier, _, comparison = operator.rpartition(":")
    if actual is None:
        return quantifier == "ForAllValues"
    compare = {
        "StringEquals": str.__eq__,
        "ArnEquals": is_like,
        "ArnLike": is_like,
        "StringLike": is_like,
    }[comparison]
    matching = [any(compare(each, str(value)) for value in values) for each in actual]
    return all(matching) if quantifier == "ForAllValues" else any(matching)
