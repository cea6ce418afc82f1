"""The option `--instance` of every command, besides that of the root command.

The option of the innermost command takes precedence. The help shows it once, at the root.
"""

from functools import cache
from typing import Annotated, Any

import typer
import typer.main

OPTION = "--instance"


def accept_instance(command: Any) -> None:
    """Adds the option to a command, and to all commands below it."""
    command.params.append(_make_option())
    for child in getattr(command, "commands", {}).values():
        accept_instance(child)


def _set_instance(context: typer.Context, value: str | None) -> str | None:
    if value is not None:
        context.obj = value
    return value


@cache
def _make_option() -> Any:
    """Returns the option as typer makes it from an argument of a function."""
    only = typer.Typer(add_completion=False)

    @only.command()
    def take(
        _where: Annotated[
            str | None,
            typer.Option(
                OPTION,
                metavar="WHERE",
                hidden=True,
                is_eager=True,
                expose_value=False,
                callback=_set_instance,
            ),
        ] = None,
    ) -> None:
        """Takes the option."""

    (option,) = (each for each in typer.main.get_command(only).params if OPTION in each.opts)
    return option
