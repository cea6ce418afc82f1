"""`sleeper follower`: the named readers of a table's log."""

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import OutputKind, OutputOption, print_listings
from sleeper.cli.table import TableName

commands = typer.Typer(help="List the named readers of a table's log.", no_args_is_help=True)


@commands.callback()
def followers() -> None:
    """List the named readers of a table's log."""


@commands.command("list")
def list_followers(
    context: typer.Context, name: TableName, output: OutputOption = OutputKind.TEXT
) -> None:
    """List a table's followers, and how far each has read."""
    with opened(context) as instance:
        from sleeper.wiring.reports import report_state

        print_listings([report_state(instance, name).followers_listing()], output)
