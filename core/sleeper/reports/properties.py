"""The reports on properties: those in force, and what a change changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.properties.declaration import INSTANCE_PROPERTIES, TABLE_PROPERTIES, Property
from sleeper.properties.values import InstanceProperties, TableProperties
from sleeper.reports.output import Column, Listing, counted

_COLUMNS = (Column("property", "Property"), Column("value", "Value"), Column("set_in", "Set in"))
_CHANGE_COLUMNS = (
    Column("property", "Property"),
    Column("before", "Before"),
    Column("after", "After"),
)


@dataclass(frozen=True, slots=True)
class PropertyInForce:
    """A property's value as text, and where it is set: `table`, `instance`, or nowhere."""

    name: str
    value: str
    set_in: str | None


@dataclass(frozen=True, slots=True)
class PropertiesReport:
    """Properties of `owner`, in the order in which they are declared."""

    name: str
    owner: str
    properties: tuple[PropertyInForce, ...]

    def only_set(self) -> "PropertiesReport":
        """Without those that are at their default."""
        return replace(self, properties=tuple(p for p in self.properties if p.set_in))

    def without(self, names: Iterable[str]) -> "PropertiesReport":
        """Without these."""
        left_out = set(names)
        return replace(self, properties=tuple(p for p in self.properties if p.name not in left_out))

    def value(self, name: str) -> str:
        """The value of that property; empty if there is none."""
        return next((p.value for p in self.properties if p.name == name), "")

    def listing(self) -> Listing:
        """A row for each property."""
        number = sum(p.set_in is not None for p in self.properties)
        return Listing(
            name=self.name,
            summary=f"{self.owner}: {counted(number, 'property', 'properties')} set",
            columns=_COLUMNS,
            rows=tuple((p.name, p.value, p.set_in) for p in self.properties),
        )


@dataclass(frozen=True, slots=True)
class ChangesReport:
    """What became of the properties `names`, and what a person should know of it."""

    names: tuple[str, ...]
    before: PropertiesReport
    after: PropertiesReport
    warnings: tuple[str, ...]

    def listing(self) -> Listing:
        """A row for each property that was given, changed or not."""
        rows = tuple((n, self.before.value(n), self.after.value(n)) for n in self.names)
        changed = sum(before != after for _, before, after in rows)
        return Listing(
            name="changes",
            summary=f"{counted(changed, 'property', 'properties')} of {self.after.owner} changed",
            columns=_CHANGE_COLUMNS,
            rows=rows,
        )


def gather_instance_properties(properties: InstanceProperties, where: str) -> PropertiesReport:
    """Every property of the instance."""
    found = [
        PropertyInForce(
            p.name, _text(properties, p), "instance" if properties.values.get(p.name) else None
        )
        for p in INSTANCE_PROPERTIES
    ]
    found += _ignored(properties.values, [p.name for p in found], "instance")
    return PropertiesReport("instance-properties", f"instance {where}", tuple(found))


def gather_table_properties(properties: TableProperties, table_name: str) -> PropertiesReport:
    """Every property of the table."""
    found = [
        PropertyInForce(p.name, _text(properties, p), _place_of(properties, p))
        for p in TABLE_PROPERTIES
    ]
    found += _ignored(properties.values, [p.name for p in found], "table")
    return PropertiesReport("table-properties", f"table {table_name}", tuple(found))


def change_warnings(
    changes: Mapping[str, str], after: InstanceProperties | TableProperties
) -> tuple[str, ...]:
    """What a person who made these changes should know."""
    told = [w for w in after.warnings() if any(name in w.split() for name in changes)]
    for name in changes:
        declaration = INSTANCE_PROPERTIES.find(name)
        if declaration is not None and declaration.redeploy:
            told.append(
                f"property {name} takes effect at the next deployment "
                "(local instance: when `sleeper run` next starts)"
            )
    return tuple(told)


def _text(properties: InstanceProperties | TableProperties, declaration: Property[Any]) -> str:
    try:
        value = properties.get(declaration)
    except InvalidRequestError:  # required, and not set
        return ""
    return "" if value is None else declaration.kind.format(value)


def _place_of(properties: TableProperties, declaration: Property[Any]) -> str | None:
    if properties.values.get(declaration.name):
        return "table"
    from_instance = declaration.default_from
    if from_instance is not None and properties.instance.values.get(from_instance.name):
        return "instance"
    return None


def _ignored(values: Mapping[str, str], known: Iterable[str], place: str) -> list[PropertyInForce]:
    left = sorted(values.keys() - set(known))
    return [PropertyInForce(name, values[name], f"{place}, ignored") for name in left]
