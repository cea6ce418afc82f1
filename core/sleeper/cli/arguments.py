"""Arguments and options that several commands share, their parsing and shell completion."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.properties.declaration import Catalogue


class OutputKind(StrEnum):
    """The formats of a report."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def use_instance(context: typer.Context) -> Iterator["Instance"]:
    """Opens the instance that `--instance` or SLEEPER_INSTANCE names, and closes it."""
    from sleeper.opening import open_instance

    instance = open_instance(context.obj)
    try:
        yield instance
    finally:
        instance.close()


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Parses `PROPERTY=VALUE` arguments; an empty value unsets a property."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"invalid setting: {text!r} (expected PROPERTY=VALUE)")
        if name in settings:
            raise typer.BadParameter(f"duplicate property: {name}")
        settings[name] = value
    return settings


def complete_table(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the matching tables of a local instance."""
    from sleeper.opening import open_instance

    where = context.find_root().params.get("where")
    try:
        if str(where or "").startswith("aws:"):  # too slow for a completion
            return []
        instance = open_instance(where)
        try:
            names = [ref.name for ref in instance.tables.index.list()]
        finally:
            instance.close()
    except Exception:  # a completion cannot report errors
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_table_property(incomplete: str) -> list[str]:
    """Returns the matching properties of tables that users set."""
    from sleeper.properties import values  # noqa: F401 (declares the properties)
    from sleeper.properties.declaration import TABLE_PROPERTIES

    return _complete_property(incomplete, TABLE_PROPERTIES)


def complete_instance_property(incomplete: str) -> list[str]:
    """Returns the matching properties of instances that users set."""
    from sleeper.properties import values  # noqa: F401 (declares the properties)
    from sleeper.properties.declaration import INSTANCE_PROPERTIES

    return _complete_property(incomplete, INSTANCE_PROPERTIES)


def _complete_property(incomplete: str, declared: "Catalogue") -> list[str]:
    from sleeper.properties.declaration import SetBy

    return [p.name for p in declared if p.set_by is SetBy.USER and p.name.startswith(incomplete)]


TableName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the table.", autocompletion=complete_table)
]
OutputOption = Annotated[OutputKind, typer.Option("--output", "-o", help="Output format.")]
