"""Generates `docs/properties.md` from the declarations.

`python -m sleeper.properties.docs` writes the page to standard output.
"""

import sys
from collections.abc import Iterable
from typing import Any

from sleeper.properties import values  # noqa: F401 (it imports all declarations)
from sleeper.properties.declaration import (
    INSTANCE_PROPERTIES,
    TABLE_PROPERTIES,
    Group,
    Property,
    SetBy,
)

_HEAD = """# Properties

This page is generated: `python -m sleeper.properties.docs > docs/properties.md`.

Property files are Java properties text with one `name=value` per line. An empty value unsets a
property. Names that are not on this page are errors, except those of gchq/sleeper, which are
ignored with a warning. An unset table property has the value of the instance property with the
same suffix under `sleeper.default.table.`, if there is one.
"""


def properties_page() -> str:
    """Returns the page as Markdown."""
    instance_properties = [p for p in INSTANCE_PROPERTIES if not _is_table_default(p)]
    return "\n".join(
        [
            _HEAD,
            "## Instance properties\n",
            *_sections(instance_properties, with_redeploy=True),
            "## Table properties\n",
            *_sections(TABLE_PROPERTIES, with_redeploy=False),
        ]
    )


def _sections(declarations: Iterable[Property[Any]], with_redeploy: bool) -> Iterable[str]:
    by_group: dict[str, list[Property[Any]]] = {}
    for declaration in declarations:
        by_group.setdefault(declaration.group, []).append(declaration)
    groups: list[str] = list(Group)
    first = groups.index(Group.COMPACTION)
    groups[first:first] = [each for each in by_group if each not in groups]
    last = "Redeploy" if with_redeploy else "Default in the instance"
    for group in groups:
        if group in by_group:
            yield f"### {group}\n"
            yield f"| Property | Description | Value | Default | {last} |"
            yield "|---|---|---|---|---|"
            yield from (_row(declaration, with_redeploy) for declaration in by_group[group])
            yield ""


def _row(declaration: Property[Any], with_redeploy: bool) -> str:
    description = declaration.description
    if declaration.set_by is not SetBy.USER:
        description += f" Set by the {declaration.set_by.value}."
    if with_redeploy:
        last = "yes" if declaration.redeploy else ""
    else:
        last = f"`{declaration.default_from.name}`" if declaration.default_from else ""
    cells = (
        f"`{declaration.name}`",
        description,
        declaration.kind.expected,
        _default(declaration),
        last,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(declaration: Property[Any]) -> str:
    if declaration.required:
        return "required"
    text = declaration.kind.format(declaration.default)
    return f"`{text}`" if text else ""


def _is_table_default(declaration: Property[Any]) -> bool:
    return declaration.name.startswith("sleeper.default.table.")


if __name__ == "__main__":
    sys.stdout.write(properties_page())
