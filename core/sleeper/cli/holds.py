"""`sleeper hold` and `sleeper follower`: claims on versions of a table."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import TableName
from sleeper.cli.output import instance_command, listing_command, note

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

FollowerName = Annotated[str, typer.Argument(metavar="FOLLOWER", help="Name of the follower.")]

holds = typer.Typer(help="List and release holds on table versions.", no_args_is_help=True)
followers = typer.Typer(
    help="Create, list and delete followers of a table's log.", no_args_is_help=True
)


@holds.command("list")
@listing_command
def list_holds(instance: "Instance", name: TableName) -> "Iterable[Listing]":
    """List the holds on a table's versions.

    \b
    Example:
      sleeper hold list flights
    """
    from sleeper.reports.service import report_state

    return [report_state(instance, name).holds_listing()]


@holds.command("release")
@instance_command
def release_hold(
    instance: "Instance",
    name: TableName,
    hold_id: Annotated[str, typer.Argument(metavar="HOLD_ID")],
) -> None:
    """Release a hold. Readers of its version may then fail.

    \b
    Example:
      sleeper hold release flights 0f6c2a9be41d4a0f
    """
    from sleeper.admin import tables

    tables.release_hold(instance, name, hold_id)
    note(f"released hold {hold_id}")


@followers.command("create")
@instance_command
def create_follower(
    instance: "Instance",
    name: TableName,
    follower: FollowerName,
    start: Annotated[
        int | None,
        typer.Option(
            "--start",
            min=0,
            metavar="N",
            help="Start after transaction N; 0 is the beginning. Default: the newest transaction.",
        ),
    ] = None,
) -> None:
    """Create a follower. The table retains changes until the follower has read them.

    A reader with the follower's name, such as a Spark stream, continues at its position.

    \b
    Examples:
      sleeper follower create flights to-archive
      sleeper follower create flights to-archive --start 0
    """
    from sleeper.admin import tables

    version = tables.create_follower(instance, name, follower, start)
    note(f"created follower {follower} of table {name} at transaction {version:,}")


@followers.command("list")
@listing_command
def list_followers(instance: "Instance", name: TableName) -> "Iterable[Listing]":
    """List the followers of a table and their positions.

    \b
    Example:
      sleeper follower list flights
    """
    from sleeper.reports.service import report_state

    return [report_state(instance, name).followers_listing()]


@followers.command("delete")
@instance_command
def delete_follower(instance: "Instance", name: TableName, follower: FollowerName) -> None:
    """Delete a follower. The table no longer retains changes for it.

    \b
    Example:
      sleeper follower delete flights to-archive
    """
    from sleeper.admin import tables

    tables.delete_follower(instance, name, follower)
    note(f"deleted follower {follower} of table {name}")
