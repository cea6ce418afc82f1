"""The systems of the product, and the loading of what they declare.

A new system adds its folder and one line here. General code names no system: it iterates over
`systems()`.
"""

from functools import cache
from importlib import import_module
from typing import Any

from sleeper.system import System

_NAMES = (
    "adapters",
    "adjunct",
    "export_queue",
    "stash",
)


@cache
def systems() -> tuple[System, ...]:
    """Returns the declarations of all systems."""
    return tuple(import_module(f"sleeper.{name}.system").SYSTEM for name in _NAMES)


@cache
def load(reference: str) -> Any:
    """Returns the object of a reference, `module:name`."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
