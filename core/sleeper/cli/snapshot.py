"""`sleeper snapshot`: stored copies of a table's state."""

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import note
from sleeper.cli.table import TableName

commands = typer.Typer(help="Store a table's state and trim its log.", no_args_is_help=True)


@commands.callback()
def snapshots() -> None:
    """Store a table's state and trim its log."""


@commands.command("take")
def take(context: typer.Context, name: TableName) -> None:
    """Store a snapshot of a table's state, and trim its log as far as nobody needs it.

    \b
    Example:
      sleeper snapshot take flights
    """
    with opened(context) as instance:
        from sleeper.wiring.collecting import snapshot_table

        taken = snapshot_table(instance, instance.tables.by_name(name), always=True)
        assert taken is not None
        note(f"the state at transaction {taken.number:,} is stored")
        if taken.trimmed_to:
            note(f"the log is trimmed up to transaction {taken.trimmed_to:,}")
