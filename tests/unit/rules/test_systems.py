"""What systems declare exists, and type checkers see the methods that `Instance` has."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import sleeper
import sleeper.api
from sleeper.api import system_methods
from sleeper.system import System
from sleeper.systems import load, systems

SYSTEMS = pytest.mark.parametrize("system", systems(), ids=lambda each: each.name)
LINES_MAX = 80


def references(declared: Any) -> Iterator[str]:
    """Yields the texts of a declaration that are references."""
    if isinstance(declared, str):
        module, colon, name = declared.partition(":")
        if colon and name.isidentifier() and module.startswith(("sleeper.", "stacks.")):
            yield declared
    elif is_dataclass(declared):
        for field in fields(declared):
            yield from references(getattr(declared, field.name))
    elif isinstance(declared, tuple):
        for each in declared:
            yield from references(each)
    elif isinstance(declared, dict):
        for each in declared.values():
            yield from references(each)


@SYSTEMS
def test_every_reference_exists(system: System) -> None:
    found = list(references(system))
    assert found
    for reference in found:
        assert load(reference) is not None
    if system.properties is not None:
        import_module(system.properties)


@SYSTEMS
def test_a_declaration_is_short(system: System) -> None:
    if system.name == "workflows":
        return
    module = import_module(f"sleeper.{system.name}.system")
    assert len(inspect.getsource(module).splitlines()) <= LINES_MAX


def test_type_checkers_see_the_methods_that_systems_add() -> None:
    tree = ast.parse(Path(system_methods.__file__).read_text(encoding="utf-8"))
    seen = [
        base.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == "SystemMethods"
        for base in node.bases
        if isinstance(base, ast.Name)
    ]
    bases = system_methods.SystemMethods.__bases__
    assert sorted(seen) == sorted(base.__name__ for base in bases)


def test_a_name_that_a_system_offers_is_one_of_the_package() -> None:
    offered = {name for system in systems() for name in system.names}
    assert offered
    assert offered <= set(sleeper.__all__)
    assert all(getattr(sleeper, name) is not None for name in offered)


def test_a_name_that_a_system_offers_is_still_one_of_the_api() -> None:
    assert sleeper.api.ExportQueue is sleeper.ExportQueue
    assert not hasattr(sleeper.api, "Unknown")
