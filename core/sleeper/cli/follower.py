"""`sleeper follower`: the named readers of a table's log."""

from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import OutputKind, OutputOption, note, print_listings
from sleeper.cli.table import TableName

commands = typer.Typer(
    help="List and delete followers, the named readers of a table's log.", no_args_is_help=True
)


@commands.command("list")
def list_followers(
    context: typer.Context, name: TableName, output: OutputOption = OutputKind.TEXT
) -> None:
    """List a table's followers, and how far each has read."""
    with opened(context) as instance:
        from sleeper.wiring.reports import report_state

        print_listings([report_state(instance, name).followers_listing()], output)


@commands.command("delete")
def delete(
    context: typer.Context,
    name: TableName,
    follower: Annotated[str, typer.Argument(metavar="FOLLOWER")],
) -> None:
    """Delete a follower: nothing is kept for it any more."""
    with opened(context) as instance:
        from sleeper.wiring.holds import delete_follower

        delete_follower(instance, name, follower)
        note(f"follower {follower} of table {name} is deleted")
