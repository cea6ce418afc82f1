"""What a shell completes: names of tables and of properties."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sleeper.properties.declaration import Catalogue

_LOCAL_ONLY = "aws:"


def table_names(context: typer.Context, incomplete: str) -> list[str]:
    """Tables of the instance whose names begin so; none where that would take long, or fails."""
    from sleeper.opening import open_instance

    where = context.find_root().params.get("where")
    try:
        if str(where or "").startswith(_LOCAL_ONLY):
            return []
        instance = open_instance(where)
        try:
            names = [ref.name for ref in instance.tables.index.list()]
        finally:
            instance.close()
    except Exception:  # a shell that completes has no place for errors
        return []
    return [name for name in names if name.startswith(incomplete)]


def table_properties(incomplete: str) -> list[str]:
    """Properties of a table that a user sets."""
    from sleeper.properties import values  # noqa: F401 (it declares them)
    from sleeper.properties.declaration import TABLE_PROPERTIES

    return _beginning(incomplete, TABLE_PROPERTIES)


def instance_properties(incomplete: str) -> list[str]:
    """Properties of an instance that a user sets."""
    from sleeper.properties import values  # noqa: F401 (it declares them)
    from sleeper.properties.declaration import INSTANCE_PROPERTIES

    return _beginning(incomplete, INSTANCE_PROPERTIES)


def _beginning(incomplete: str, declared: "Catalogue") -> list[str]:
    from sleeper.properties.declaration import SetBy

    return [
        each.name
        for each in declared
        if each.set_by is SetBy.USER and each.name.startswith(incomplete)
    ]
