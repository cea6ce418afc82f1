"""User code of an instance: wheels added, listed and removed, and names checked."""

from collections.abc import Sequence
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.processing.model import IteratorCall
from sleeper.properties.table import (
    COMPACTION_STRATEGY,
    DEFAULT_ITERATOR_CLASS_NAME,
    ITERATOR_CLASS_NAME,
)
from sleeper.reports.code import CodeReport
from sleeper.schema.model import Schema
from sleeper.user_code.name import CodeKind
from sleeper.user_code.wheel import Wheel
from sleeper.wiring.instance import Instance, OpenTable

_DEFAULT_STRATEGY = COMPACTION_STRATEGY.default_from


def add_wheels(instance: Instance, paths: Sequence[Path]) -> list[Wheel]:
    """Adds wheels, all or none; returns those that are new. None of their code is run."""
    return instance.code.registry.add(paths)


def remove_wheel(instance: Instance, name: str) -> Wheel:
    """Removes the wheel of that file or project name.

    NotFoundError if there is none, InvalidRequestError if something uses one of its names.
    """
    registry = instance.code.registry
    wheel = registry.named(name)
    for point in wheel.entry_points:
        users = _users(instance, point.kind, point.name)
        if users:
            raise InvalidRequestError(
                f"{point.kind.noun} {point.name!r} of {wheel.file_name} is used by "
                f"{', '.join(users)}: set it otherwise first"
            )
    registry.remove(wheel)
    return wheel


def report_code(instance: Instance) -> CodeReport:
    """Every registered name."""
    return CodeReport(tuple(instance.code.registry.wheels()))


def check_iterator(instance: Instance, table: str, schema: Schema, call: IteratorCall) -> None:
    """InvalidRequestError if it is not registered, or refuses its config or the fields.

    It is made to find out, so its code is run here.
    """
    # Arrow takes long to load, and most tables have no iterator.
    from sleeper.datafiles.bound_iterator import TableIterators

    bound = TableIterators(table, instance.code).bind(call)
    if bound is not None:
        bound.check(schema)


def check_strategy(instance: Instance, name: str) -> None:
    """InvalidRequestError if no such strategy is registered."""
    instance.code.registry.find(CodeKind.STRATEGY, name)


def _users(instance: Instance, kind: CodeKind, name: str) -> list[str]:
    of_instance = {
        CodeKind.ITERATOR: DEFAULT_ITERATOR_CLASS_NAME,
        CodeKind.STRATEGY: _DEFAULT_STRATEGY,
    }
    of_table = {CodeKind.ITERATOR: ITERATOR_CLASS_NAME, CodeKind.STRATEGY: COMPACTION_STRATEGY}
    default = of_instance[kind]
    users = []
    if default is not None and instance.properties().get(default) == name:
        users.append(f"property {default.name} of the instance")
    for ref in instance.tables.list():
        table = OpenTable(instance, ref)
        value = table.properties().get(of_table[kind])
        if kind is CodeKind.ITERATOR:
            with table.state.reading() as state:
                iterator = state.processing.iterator
            value = iterator.name if iterator is not None else None
        if value == name:
            users.append(f"table {ref.name}")
    return users
