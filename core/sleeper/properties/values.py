"""Validated properties of an instance and of a table, with typed values.

Names of gchq/sleeper without a declaration are accepted with a warning, so that existing
configurations work unchanged. So are unknown names in the stored files of an instance that a newer
version deployed, so that its older clients go on. `gchq_properties.tsv` lists the names of
gchq/sleeper: the party that sets the property (the user of an instance or of a table, or the
deployment), its name, and a literal default.
"""

import csv
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from typing import TypeVar

from sleeper import __version__
from sleeper.errors import InvalidRequestError, UnavailableError, did_you_mean
from sleeper.properties import instance
from sleeper.properties import table as of_table
from sleeper.properties.declaration import (
    INSTANCE_PROPERTIES,
    TABLE_PROPERTIES,
    Catalogue,
    Property,
    Scope,
    SetBy,
)
from sleeper.properties.instance import IGNORED_STACKS
from sleeper.properties.java_text import read_properties_text, write_properties_text
from sleeper.systems import systems

T = TypeVar("T")
logger = logging.getLogger(__name__)

for _module in (each.properties for each in systems() if each.properties is not None):
    import_module(_module)


@dataclass(frozen=True, slots=True)
class InstanceProperties:
    """The properties of an instance, validated by `instance_properties`."""

    values: Mapping[str, str]

    def get(self, declaration: Property[T]) -> T:
        """Returns the typed value or the default. InvalidRequestError if required and unset."""
        return _typed(self.values, declaration, declaration.default)

    def with_values(self, changes: Mapping[str, str]) -> "InstanceProperties":
        """Returns a validated copy with these values. An empty value unsets a property."""
        return _instance_properties({**self.values, **changes}, accepted=self.values)

    def to_text(self) -> str:
        """Returns the Java properties text."""
        return write_properties_text(self.values)

    def warnings(self) -> tuple[str, ...]:
        """Warnings about values without effect."""
        stacks = (s for s in self.get(instance.OPTIONAL_STACKS) if s in IGNORED_STACKS)
        ignored = (f"optional stack {stack} means nothing here, and is ignored" for stack in stacks)
        return (*_warnings(self.values, INSTANCE_PROPERTIES), *ignored)


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table and of its instance, validated by `table_properties`."""

    values: Mapping[str, str]
    instance: InstanceProperties

    def get(self, declaration: Property[T]) -> T:
        """Returns the typed value of the table, else of the instance, else the default.

        An instance property is read from the instance.
        """
        if declaration.scope is Scope.INSTANCE:
            return self.instance.get(declaration)
        default = declaration.default
        if declaration.default_from is not None and not self.values.get(declaration.name):
            return self.instance.get(declaration.default_from)
        return _typed(self.values, declaration, default)

    def with_values(self, changes: Mapping[str, str]) -> "TableProperties":
        """Returns a validated copy with these values. An empty value unsets a property."""
        values = _checked({**self.values, **changes}, TABLE_PROPERTIES, accepted=self.values)
        return TableProperties(values, self.instance)

    def to_text(self) -> str:
        """Returns Java properties text."""
        return write_properties_text(self.values)

    def warnings(self) -> tuple[str, ...]:
        """Warnings about values without effect."""
        is_snapshot = self.get(of_table.TYPE) is of_table.TableType.SNAPSHOT
        without_effect = (
            f"property {each.name} has no effect: the table is not a snapshot table (expected "
            f"{of_table.TYPE.name}=snapshot)"
            for each in (of_table.SNAPSHOT_TTL, of_table.SNAPSHOT_VERSIONS_MIN)
            if self.values.get(each.name) and not is_snapshot
        )
        return (
            *_warnings(self.values, TABLE_PROPERTIES),
            *without_effect,
            *(_snapshot_warnings(self) if is_snapshot else ()),
        )


def _snapshot_warnings(properties: TableProperties) -> Iterator[str]:
    """Yields warnings about values that mean something else in a snapshot table."""
    versions_min, ttl = of_table.SNAPSHOT_VERSIONS_MIN, of_table.SNAPSHOT_TTL
    if properties.get(versions_min) == 0:
        yield (
            f"property {versions_min.name} is 0 without {ttl.name}, so it has no effect: the "
            "newest version stays"
            if properties.get(ttl) is None
            else f"property {versions_min.name} is 0: if the loads stop for longer than {ttl.name} "
            "the newest version expires too, and the table has no rows (expected at least 1 to "
            "keep it)"
        )
    if properties.get(of_table.ROWS) is of_table.RowChoice.LATEST:
        yield (
            f"property {of_table.ROWS.name} is latest in a snapshot table: it chooses among the "
            "rows of one load only, because each load replaces all rows"
        )


def instance_properties(values: Mapping[str, str]) -> InstanceProperties:
    """Returns validated instance properties.

    InvalidRequestError if a name is unknown, a value is invalid, or values conflict. Names of
    gchq/sleeper without effect here are kept, with a warning.
    """
    return _instance_properties(values)


def _instance_properties(
    values: Mapping[str, str], accepted: Collection[str] = ()
) -> InstanceProperties:
    properties = InstanceProperties(_checked(values, INSTANCE_PROPERTIES, accepted))
    _check_together(properties)
    return properties


def instance_properties_from_text(text: str) -> InstanceProperties:
    """Returns validated instance properties of the stored file of an instance.

    Unknown names are kept, without effect, if a newer version deployed the instance.
    """
    values = read_properties_text(text)
    return _instance_properties(values, _accept_of_newer(values, values, INSTANCE_PROPERTIES))


def without_newer(values: Mapping[str, str]) -> dict[str, str]:
    """Returns the values of a stored file without unknown names that a newer version deployed."""
    unknown = _accept_of_newer(values, values, INSTANCE_PROPERTIES)
    return {name: value for name, value in values.items() if name not in unknown}


def table_properties(values: Mapping[str, str], instance: InstanceProperties) -> TableProperties:
    """Returns validated table properties. Errors are those of `instance_properties`."""
    return TableProperties(_checked(values, TABLE_PROPERTIES), instance)


def table_properties_from_text(text: str, instance: InstanceProperties) -> TableProperties:
    """Returns validated table properties of a property file.

    UnavailableError if it lacks the schema, which every table's file has: the file is truncated,
    so restrictions may be missing too. Names are written in order, restrictions before the schema.
    """
    values = read_properties_text(text)
    accepted = _accept_of_newer(instance.values, values, TABLE_PROPERTIES)
    properties = TableProperties(_checked(values, TABLE_PROPERTIES, accepted), instance)
    schema = of_table.SCHEMA.name
    if schema not in properties.values:
        name = properties.values.get(of_table.NAME.name, "")
        raise UnavailableError(
            f"the property file of table {name!r} is incomplete: it has no {schema} (expected in "
            "every table's file: restore the file)"
        )
    return properties


def declared(name: str) -> Property[object]:
    """Returns the declaration of that name. InvalidRequestError suggests a similar name."""
    declaration = INSTANCE_PROPERTIES.find(name) or TABLE_PROPERTIES.find(name)
    if declaration is None:
        raise _unknown_error(name, "property", INSTANCE_PROPERTIES, TABLE_PROPERTIES)
    return declaration


def check_set_by_user(names: Mapping[str, str]) -> None:
    """Raises InvalidRequestError if users may not set one of these."""
    for name in names:
        declaration = INSTANCE_PROPERTIES.find(name) or TABLE_PROPERTIES.find(name)
        if declaration is not None and declaration.set_by is not SetBy.USER:
            raise InvalidRequestError(f"property {name} is set by the {declaration.set_by.value}")


def _accept_of_newer(
    deployed: Mapping[str, str], values: Mapping[str, str], catalogue: Catalogue
) -> frozenset[str]:
    """Returns the unknown names among the values, if a newer version deployed the instance."""
    version = deployed.get(instance.VERSION.name, "")
    if _numbers(version) <= _numbers(__version__):
        return frozenset()
    unknown = frozenset(n for n in values if catalogue.find(n) is None and not is_ignored(n))
    if unknown:
        _warn_of_newer(version, ", ".join(sorted(unknown)))
    return unknown


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


@cache
def _warn_of_newer(version: str, names: str) -> None:
    """Logs a warning, once in a process."""
    logger.warning(
        "version %s deployed the instance, and %s ignores its properties %s (upgrade the client)",
        version,
        __version__,
        names,
    )


def _checked(
    values: Mapping[str, str], catalogue: Catalogue, accepted: Collection[str] = ()
) -> dict[str, str]:
    kept = {name: value.strip() for name, value in values.items() if value.strip()}
    for name, value in kept.items():
        declaration = catalogue.find(name)
        if declaration is not None:
            declaration.parse(value)
        elif name not in accepted and not is_ignored(name):
            raise _unknown_error(name, f"{catalogue.scope.value} property", catalogue)
    return kept


def is_ignored(name: str) -> bool:
    """Returns whether only gchq/sleeper has a property of this name."""
    is_declared = INSTANCE_PROPERTIES.find(name) or TABLE_PROPERTIES.find(name)
    return not is_declared and name in gchq_names()


def _unknown_error(name: str, kind: str, *catalogues: Catalogue) -> InvalidRequestError:
    names = [each for catalogue in catalogues for each in catalogue.names()]
    article = "an" if kind.startswith("i") else "a"
    return InvalidRequestError(f"{name!r} is not {article} {kind}{did_you_mean(name, names)}")


def _typed(values: Mapping[str, str], declaration: Property[T], default: T | None) -> T:
    text = values.get(declaration.name)
    if text:
        return declaration.parse(text)
    if default is None and declaration.required:
        raise InvalidRequestError(f"property {declaration.name} is not set")
    # A declaration without a default is required or of an optional kind, whose T has None.
    return default  # type: ignore[return-value]


def _warnings(values: Mapping[str, str], catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(
        f"property {name} means nothing here, and is ignored"
        for name in sorted(values)
        if catalogue.find(name) is None
    )


def _check_together(properties: InstanceProperties) -> None:
    keepalive = properties.get(instance.INGEST_KEEPALIVE_SECONDS)
    visibility = properties.get(instance.INGEST_VISIBILITY_SECONDS)
    if keepalive >= visibility:
        raise InvalidRequestError(
            f"property {instance.INGEST_KEEPALIVE_SECONDS.name} is {keepalive}: it must be less "
            f"than {instance.INGEST_VISIBILITY_SECONDS.name}, which is {visibility}"
        )
    lease = properties.get(instance.COMPACTION_LEASE_SECONDS)
    attempts = properties.get(instance.COMPACTION_RETRIES_MAX)
    retries = attempts * properties.get(instance.COMPACTION_VISIBILITY_SECONDS)
    if lease <= retries:
        raise InvalidRequestError(
            f"property {instance.COMPACTION_LEASE_SECONDS.name} is {lease}: it must be longer than "
            f"the {attempts} attempts of the queue, which take {retries} seconds"
        )
    low = properties.get(_find_default(of_table.BATCHER_JOB_SIZE_MIN))
    high = properties.get(_find_default(of_table.BATCHER_JOB_SIZE_MAX))
    if low > high:
        raise InvalidRequestError(
            f"property {_find_default(of_table.BATCHER_JOB_SIZE_MIN).name} is more than the maximum"
        )


def _find_default(declaration: Property[T]) -> Property[T]:
    assert declaration.default_from is not None
    return declaration.default_from


SET_BY_DEPLOYMENT = "deployment"


@cache
def gchq_names() -> Mapping[str, str]:
    """Returns the party that sets each property, by property name."""
    file = resources.files(__package__) / "gchq_properties.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t")
    return {name: set_by for set_by, name, _ in rows}
