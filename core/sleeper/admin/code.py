"""User code of an instance: its wheels, and checks of the names that they register."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.model import IteratorCall
from sleeper.properties.table import (
    COMPACTION_STRATEGY,
    DEFAULT_ITERATOR_CLASS_NAME,
)
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.schema.model import Schema
from sleeper.systems import load, systems
from sleeper.user_code.wheel import BUILT_IN, CodeKind, Wheel

assert COMPACTION_STRATEGY.default_from is not None
_DEFAULTS = {
    CodeKind.ITERATOR: DEFAULT_ITERATOR_CLASS_NAME.name,
    CodeKind.STRATEGY: COMPACTION_STRATEGY.default_from.name,
}

_COLUMNS = (
    Column("name", "Name"),
    Column("kind", "Kind"),
    Column("object", "Object"),
    Column("wheel", "Wheel"),
    Column("version", "Version"),
    Column("bytes", "Bytes", ColumnKind.BYTES),
)


@dataclass(frozen=True, slots=True)
class CodeReport:
    """The wheels of an instance and the names that they register."""

    wheels: tuple[Wheel, ...]

    def listing(self) -> Listing:
        """Returns a row per name, built-in names last."""
        rows = [
            (p.name, p.kind.noun, p.place, wheel.file_name, wheel.version, wheel.bytes)
            for wheel in self.wheels
            for p in sorted(
                wheel.entry_points, key=lambda p: (list(CodeKind).index(p.kind), p.name)
            )
        ]
        built_in = [(p.name, p.kind.noun, p.place, None, None, None) for p in BUILT_IN]
        names = pluralize(len(rows), "name")
        return Listing(
            name="code",
            summary=f"{names} in {pluralize(len(self.wheels), 'wheel')}, {len(built_in)} built in",
            columns=_COLUMNS,
            rows=(*rows, *built_in),
        )


def add_wheels(instance: Instance, paths: Sequence[Path]) -> list[Wheel]:
    """Adds wheels, all or none, without running their code; returns the new ones."""
    return instance.code.registry.add(paths)


def remove_wheel(instance: Instance, name: str) -> str:
    """Removes a wheel by its file name or project name; returns its file name.

    NotFoundError if the wheel is unknown, InvalidRequestError if one of its names is in use.
    """
    registry = instance.code.registry
    if name in registry.invalid_files():
        registry.remove(name)
        return name
    wheel = registry.get(name)
    for point in wheel.entry_points:
        users = _find_users(instance, point.kind, point.name)
        if users:
            raise InvalidRequestError(
                f"{point.kind.noun} {point.name!r} of {wheel.file_name} is in use by "
                f"{', '.join(users)}: change {_holder(point.kind)} first"
            )
    registry.remove(wheel.file_name)
    return wheel.file_name


def report_code(instance: Instance) -> CodeReport:
    """Returns the registered names."""
    return CodeReport(tuple(instance.code.registry.wheels()))


def check_iterator(instance: Instance, table: str, schema: Schema, call: IteratorCall) -> None:
    """Raises InvalidRequestError if the iterator is unknown or rejects its config or schema.

    Constructs the iterator, which runs user code. A small lambda has no Arrow for that, so it
    checks the name only.
    """
    instance.code.registry.find(CodeKind.ITERATOR, call.name)
    if find_spec("pyarrow") is None:
        return
    # Arrow takes a second to load, and most tables have no iterator.
    from sleeper.datafiles.merge.steps import TableIterators

    bound = TableIterators(table, instance.code).bind(call)
    if bound is not None:
        bound.check(schema)


def check_strategy(instance: Instance, name: str) -> None:
    """Raises InvalidRequestError if the compaction strategy is not registered."""
    instance.code.registry.find(CodeKind.STRATEGY, name)


def check_default_names(instance: Instance, changes: Mapping[str, str]) -> None:
    """Raises InvalidRequestError if a default for new tables names unregistered code."""
    for kind, default in _DEFAULTS.items():
        text = changes.get(default, "").strip()
        if text:
            instance.code.registry.find(kind, text.rpartition(".")[2])


def _find_users(instance: Instance, kind: CodeKind, name: str) -> list[str]:
    found = (load(each.code_users)(instance, kind, name) for each in systems() if each.code_users)
    users: list[str] = list(chain.from_iterable(found))
    if kind not in _DEFAULTS:
        return users
    is_iterator = kind is CodeKind.ITERATOR
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


def _holder(kind: CodeKind) -> str:
    return "its exporter" if kind is CodeKind.EXPORTER else "the property"
