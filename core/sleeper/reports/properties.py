"""The reports on effective properties and on changes to them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.properties.declaration import INSTANCE_PROPERTIES, TABLE_PROPERTIES, Property
from sleeper.properties.values import InstanceProperties, TableProperties
from sleeper.reports.output import Column, Listing, pluralize

_COLUMNS = (
    Column("property", "Property", value=lambda each: each.name),
    Column("value", "Value"),
    Column("set_in", "Set in"),
)
_CHANGE_COLUMNS = (
    Column("property", "Property"),
    Column("before", "Before"),
    Column("after", "After"),
)


@dataclass(frozen=True, slots=True)
class EffectiveProperty:
    """A property's value as text, and its origin: `table`, `instance`, or None for the default."""

    name: str
    value: str
    set_in: str | None


@dataclass(frozen=True, slots=True)
class PropertiesReport:
    """Properties of `owner`, in order of declaration."""

    name: str
    owner: str
    properties: tuple[EffectiveProperty, ...]

    def only_set(self) -> "PropertiesReport":
        """Returns the report without properties at their defaults."""
        return replace(self, properties=tuple(p for p in self.properties if p.set_in))

    def without(self, names: Iterable[str]) -> "PropertiesReport":
        """Returns the report without the named properties."""
        omitted = set(names)
        return replace(self, properties=tuple(p for p in self.properties if p.name not in omitted))

    def value(self, name: str) -> str:
        """Returns the value of a property, or an empty string if it is unknown."""
        return next((p.value for p in self.properties if p.name == name), "")

    def listing(self) -> Listing:
        """Returns a row per property."""
        number = sum(p.set_in is not None for p in self.properties)
        summary = f"{self.owner}: {pluralize(number, 'property', 'properties')} set"
        return Listing.describe(self.name, summary, _COLUMNS, self.properties)


@dataclass(frozen=True, slots=True)
class ChangesReport:
    """Properties before and after a change of those in `names`, with warnings."""

    names: tuple[str, ...]
    before: PropertiesReport
    after: PropertiesReport
    warnings: tuple[str, ...]

    def listing(self) -> Listing:
        """Returns a row per property in `names`, changed or not."""
        rows = tuple((n, self.before.value(n), self.after.value(n)) for n in self.names)
        changed = sum(before != after for _, before, after in rows)
        summary = f"{pluralize(changed, 'property', 'properties')} of {self.after.owner} changed"
        return Listing("changes", summary, _CHANGE_COLUMNS, rows)


def gather_instance_properties(properties: InstanceProperties, where: str) -> PropertiesReport:
    """Returns all properties of the instance."""
    effective = [
        EffectiveProperty(
            p.name,
            _format_value(properties, p),
            "instance" if properties.values.get(p.name) else None,
        )
        for p in INSTANCE_PROPERTIES
    ]
    effective += _list_ignored(properties.values, [p.name for p in effective], "instance")
    return PropertiesReport("instance-properties", f"instance {where}", tuple(effective))


def gather_table_properties(properties: TableProperties, table_name: str) -> PropertiesReport:
    """Returns all properties of the table."""
    effective = [
        EffectiveProperty(p.name, _format_value(properties, p), _find_origin(properties, p))
        for p in TABLE_PROPERTIES
    ]
    effective += _list_ignored(properties.values, [p.name for p in effective], "table")
    return PropertiesReport("table-properties", f"table {table_name}", tuple(effective))


def collect_warnings(
    changes: Mapping[str, str], after: InstanceProperties | TableProperties
) -> tuple[str, ...]:
    """Returns the warnings that concern the changed properties."""
    warnings = [w for w in after.warnings() if any(name in w.split() for name in changes)]
    for name in changes:
        declaration = INSTANCE_PROPERTIES.find(name)
        if declaration is not None and declaration.redeploy:
            warnings.append(
                f"property {name} takes effect at the next deployment "
                "(local instance: when `sleeper run` next starts, if it uses the property)"
            )
    return tuple(warnings)


def _format_value(
    properties: InstanceProperties | TableProperties, declaration: Property[Any]
) -> str:
    try:
        value = properties.get(declaration)
    except InvalidRequestError:  # required, and not set
        return ""
    return "" if value is None else declaration.kind.format(value)


def _find_origin(properties: TableProperties, declaration: Property[Any]) -> str | None:
    if properties.values.get(declaration.name):
        return "table"
    from_instance = declaration.default_from
    if from_instance is not None and properties.instance.values.get(from_instance.name):
        return "instance"
    return None


def _list_ignored(
    values: Mapping[str, str], names: Iterable[str], origin: str
) -> list[EffectiveProperty]:
    ignored = sorted(values.keys() - set(names))
    return [EffectiveProperty(name, values[name], f"{origin}, ignored") for name in ignored]
