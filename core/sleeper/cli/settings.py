"""`PROPERTY=VALUE` arguments."""

from collections.abc import Iterable

import typer


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Names and values; an empty value unsets. Wrong usage if one has no `=`, or comes twice."""
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
