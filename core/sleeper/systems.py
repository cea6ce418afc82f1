"""The systems of the product, and the loading of what they declare.

A new system adds its folder and one line here. General code names no system: it iterates over
`systems()`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from sleeper.system import Queue, System

# Stacks of systems are created in this order.
_MODULES = (
    "sleeper.workflows",
    "sleeper.athena.system",
    "sleeper.bulk_import.system",
    "sleeper.bulk_export.system",
    "sleeper.adapters.system",
    "sleeper.stash.system",
    "sleeper.iceberg.system",
    "sleeper.export_queue.system",
    "sleeper.adjunct.system",
)


@cache
def systems() -> tuple[System, ...]:
    """Returns the declarations of the workflows and of all systems."""
    return tuple(import_module(module).SYSTEM for module in _MODULES)


@cache
def queues() -> dict[str, Queue]:
    """Returns all queues by name."""
    return {queue.name: queue for system in systems() for queue in system.queues}


def reports_after(name: str) -> Iterator[str]:
    """Yields the names of the reports of systems that stand after this report."""
    return (each.name for system in systems() for each in system.reports if each.after == name)


@cache
def follower_prefixes() -> tuple[str, ...]:
    """Returns the beginnings of the names of followers that belong to systems."""
    return tuple(each.follower_prefix for each in systems() if each.follower_prefix is not None)


@cache
def load(reference: str) -> Any:
    """Returns the object of a reference, `module:name`."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def missing_members(members: Mapping[str, Any], values: Iterable[str]) -> dict[str, str]:
    """Returns the members of an enumeration, by name, for the values that it does not have."""
    present = set(members.values())
    return {each.upper().replace("-", "_"): each for each in values if each not in present}
