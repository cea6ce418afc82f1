"""`sleeper hold`: the claims on versions of a table."""

from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings
from sleeper.cli.table import TableName

commands = typer.Typer(
    help="List and release holds, which keep versions of a table readable.", no_args_is_help=True
)


@commands.command("list")
def list_holds(
    context: typer.Context, name: TableName, output: OutputOption = OutputKind.TEXT
) -> None:
    """List the holds on a table's versions.

    \b
    Example:
      sleeper hold list flights
    """
    with opened(context) as instance:
        from sleeper.reports.service import report_state

        print_listings([report_state(instance, name).holds_listing()], output)


@commands.command("release")
def release(
    context: typer.Context,
    name: TableName,
    hold_id: Annotated[str, typer.Argument(metavar="HOLD_ID")],
) -> None:
    """Release a hold: whoever reads its version may find it gone.

    \b
    Example:
      sleeper hold release flights 0f6c2a9be41d4a0f
    """
    with opened(context) as instance:
        from sleeper.admin.holds import release_hold

        release_hold(instance, name, hold_id)
        note(f"released hold {hold_id}")
