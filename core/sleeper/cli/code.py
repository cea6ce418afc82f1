"""`sleeper code`: wheels with iterators and compaction strategies of your own."""

from pathlib import Path
from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings

commands = typer.Typer(
    help="Add, list and remove iterators and compaction strategies of your own.",
    no_args_is_help=True,
)


@commands.command("add")
def add(
    context: typer.Context,
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL")],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Add wheels, all or none, and list what is registered then.

    Their entry points of the groups sleeper.iterators and sleeper.compaction_strategies register
    names. Nothing of them is run now.

    \b
    Example:
      sleeper code add dist/my_iterators-1.0-py3-none-any.whl
    """
    with opened(context) as instance:
        from sleeper.admin.code import add_wheels, report_code

        added = add_wheels(instance, wheels)
        print_listings([report_code(instance).listing()], output)
        for wheel in added:
            note(f"added {wheel.file_name}")


@commands.command("list")
def list_code(context: typer.Context, output: OutputOption = OutputKind.TEXT) -> None:
    """List the registered names, and the wheels that they are from.

    \b
    Example:
      sleeper code list
    """
    with opened(context) as instance:
        from sleeper.admin.code import report_code

        print_listings([report_code(instance).listing()], output)


@commands.command("remove")
def remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="WHEEL", help="Its file or project name.")],
) -> None:
    """Remove a wheel. Refused while a table uses one of its names.

    \b
    Example:
      sleeper code remove my_iterators
    """
    with opened(context) as instance:
        from sleeper.admin.code import remove_wheel

        note(f"removed {remove_wheel(instance, name)}")
