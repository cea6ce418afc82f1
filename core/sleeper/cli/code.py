"""`sleeper code`: wheels with iterators, strategies, exporters and extractors of users."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import OutputKind, OutputOption
from sleeper.cli.output import instance_command, listing_command, note, print_listings

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

code = typer.Typer(help="Add, list and remove wheels with user code.", no_args_is_help=True)


@code.command("add")
@instance_command
def add_code(
    instance: "Instance",
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL")],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Add wheels with iterators, strategies, exporters and extractors: all of them, or none.

    Entry points in the groups sleeper.iterators, sleeper.compaction_strategies, sleeper.exporters
    and sleeper.extractors register names. The command does not run code of the wheels.

    \b
    Example:
      sleeper code add dist/my_iterators-1.0-py3-none-any.whl
    """
    from sleeper.admin.code import add_wheels, report_code

    added = add_wheels(instance, wheels)
    print_listings([report_code(instance).listing()], output)
    for wheel in added:
        note(f"added {wheel.file_name}")


@code.command("list")
@listing_command
def list_code(instance: "Instance") -> "Iterable[Listing]":
    """List the registered names and their wheels.

    \b
    Example:
      sleeper code list
    """
    from sleeper.admin.code import report_code

    return [report_code(instance).listing()]


@code.command("remove")
@instance_command
def remove_code(
    instance: "Instance",
    name: Annotated[
        str, typer.Argument(metavar="WHEEL", help="File name or project name of the wheel.")
    ],
) -> None:
    """Remove a wheel, unless a table uses one of its names.

    \b
    Example:
      sleeper code remove my_iterators
    """
    from sleeper.admin.code import remove_wheel

    note(f"removed {remove_wheel(instance, name)}")
