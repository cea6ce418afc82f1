"""User code of an instance: wheels added, listed and removed, and names checked."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.model import IteratorCall
from sleeper.properties.table import (
    COMPACTION_STRATEGY,
    DEFAULT_ITERATOR_CLASS_NAME,
)
from sleeper.reports.code import CodeReport
from sleeper.schema.model import Schema
from sleeper.user_code.name import CodeKind
from sleeper.user_code.wheel import Wheel

assert COMPACTION_STRATEGY.default_from is not None
_DEFAULTS = {
    CodeKind.ITERATOR: DEFAULT_ITERATOR_CLASS_NAME.name,
    CodeKind.STRATEGY: COMPACTION_STRATEGY.default_from.name,
}


def add_wheels(instance: Instance, paths: Sequence[Path]) -> list[Wheel]:
    """Adds wheels, all or none; returns those that are new. None of their code is run."""
    return instance.code.registry.add(paths)


def remove_wheel(instance: Instance, name: str) -> str:
    """Removes the wheel of that file or project name; returns its file's.

    NotFoundError if there is none, InvalidRequestError if something uses one of its names.
    """
    registry = instance.code.registry
    if name in registry.unusable():
        registry.remove(name)
        return name
    wheel = registry.named(name)
    for point in wheel.entry_points:
        users = _users(instance, point.kind, point.name)
        if users:
            raise InvalidRequestError(
                f"{point.kind.noun} {point.name!r} of {wheel.file_name} is in use by "
                f"{', '.join(users)}: change that first"
            )
    registry.remove(wheel.file_name)
    return wheel.file_name


def report_code(instance: Instance) -> CodeReport:
    """Every registered name."""
    return CodeReport(tuple(instance.code.registry.wheels()))


def check_iterator(instance: Instance, table: str, schema: Schema, call: IteratorCall) -> None:
    """InvalidRequestError if it is not registered, or refuses its config or the fields.

    It is made to find out, so its code is run here; but not in a small lambda, where there is no
    Arrow to run it with.
    """
    instance.code.registry.find(CodeKind.ITERATOR, call.name)
    if find_spec("pyarrow") is None:
        return
    # Arrow takes long to load, and most tables have no iterator.
    from sleeper.datafiles.merge.bound_iterator import TableIterators

    bound = TableIterators(table, instance.code).bind(call)
    if bound is not None:
        bound.check(schema)


def check_strategy(instance: Instance, name: str) -> None:
    """InvalidRequestError if no such strategy is registered."""
    instance.code.registry.find(CodeKind.STRATEGY, name)


def check_default_names(instance: Instance, changes: Mapping[str, str]) -> None:
    """InvalidRequestError if a property for new tables is to name what is not registered."""
    for kind, default in _DEFAULTS.items():
        text = changes.get(default, "").strip()
        if text:
            instance.code.registry.find(kind, text.rpartition(".")[2])


def _users(instance: Instance, kind: CodeKind, name: str) -> list[str]:
    is_iterator = kind is CodeKind.ITERATOR
    users = []
    if instance.properties().values.get(_DEFAULTS[kind], "").rpartition(".")[2] == name:
        users.append(f"property {_DEFAULTS[kind]} of the instance")
    for ref in instance.tables.index.list():
        table = OpenTable(instance, ref)
        with table.state.reading() as state:
            iterator = state.processing.iterator
        strategy = table.properties().get(COMPACTION_STRATEGY)
        if name == ((iterator and iterator.name) if is_iterator else strategy):
            users.append(f"table {ref.name}")
    return users
