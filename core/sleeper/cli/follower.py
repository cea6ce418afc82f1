"""`sleeper follower`: the named readers of a table's log."""

from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings
from sleeper.cli.table import TableName

FollowerName = Annotated[str, typer.Argument(metavar="FOLLOWER", help="The follower's name.")]

commands = typer.Typer(
    help="Make, list and delete followers, the named readers of a table's log.",
    no_args_is_help=True,
)


@commands.command("create")
def create(
    context: typer.Context,
    name: TableName,
    follower: FollowerName,
    start: Annotated[
        int | None,
        typer.Option(
            "--start",
            min=0,
            metavar="N",
            help="It has yet to read what came after transaction N; 0 is everything. Default: the "
            "newest, so only what comes from now on.",
        ),
    ] = None,
) -> None:
    """Make a follower: what it has not read is kept, until somebody deletes it.

    Who reads under its name, such as a stream of Spark's, goes on where it is.

    \b
    Examples:
      sleeper follower create flights to-archive
      sleeper follower create flights to-archive --start 0
    """
    with opened(context) as instance:
        from sleeper.admin.holds import create_follower

        version = create_follower(instance, name, follower, start)
        note(f"created follower {follower} of table {name} at transaction {version:,}")


@commands.command("list")
def list_followers(
    context: typer.Context, name: TableName, output: OutputOption = OutputKind.TEXT
) -> None:
    """List a table's followers, and how far each has read.

    \b
    Example:
      sleeper follower list flights
    """
    with opened(context) as instance:
        from sleeper.reports.service import report_state

        print_listings([report_state(instance, name).followers_listing()], output)


@commands.command("delete")
def delete(
    context: typer.Context,
    name: TableName,
    follower: FollowerName,
) -> None:
    """Delete a follower: nothing is kept for it any more.

    \b
    Example:
      sleeper follower delete flights to-archive
    """
    with opened(context) as instance:
        from sleeper.admin.holds import delete_follower

        delete_follower(instance, name, follower)
        note(f"deleted follower {follower} of table {name}")
