"""The order in which CloudFormation creates resources: after those that they refer to or name."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_VARIABLE = re.compile(r"\$\{([^!][^}.]*)")


def preceding(template: Mapping[str, Any], logical_id: str) -> set[str]:
    """Returns the resources that exist when CloudFormation begins to create that one.

    All others can be created later.
    """
    resources = template["Resources"]
    found: set[str] = set()
    waiting = [logical_id]
    while waiting:
        fresh = set(_references(resources[waiting.pop()])) & set(resources) - found
        found |= fresh
        waiting += fresh
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _named(key, item)


def _named(key: str, item: Any) -> Iterator[str]:
    match key, item:
        case "Ref", str(name):
            yield name
        case "Fn::GetAtt", [str(name), *_]:
            yield name
        case "Fn::Sub", _:
            text, *variables = item if isinstance(item, list) else [item]
            yield from _VARIABLE.findall(text)
            yield from _references(variables)
        case "DependsOn", _:
            yield from [item] if isinstance(item, str) else item
        case _:
            yield from _references(item)
