"""`sleeper compact`, `split` and `gc`: a table's files and partitions, now and here."""

from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import note
from sleeper.cli.table import TableName


def compact(
    context: typer.Context,
    name: TableName,
    everything: Annotated[
        bool, typer.Option("--all", help="All files of every leaf into one, whatever the strategy.")
    ] = False,
) -> None:
    """Compact a table's files now, in this process.

    \b
    Examples:
      sleeper compact flights
      sleeper compact flights --all
    """
    with opened(context) as instance:
        instance.table(name)
        from sleeper.wiring.shaping import compact_table

        note(str(compact_table(instance, name, everything)))


def split(context: typer.Context, name: TableName) -> None:
    """Split those leaves of a table that hold more rows than its threshold.

    \b
    Example:
      sleeper split flights
    """
    with opened(context) as instance:
        instance.table(name)
        from sleeper.wiring.shaping import split_table

        note(str(split_table(instance, name)))


def gc(
    context: typer.Context,
    name: TableName,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Also objects that dead runs left behind.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")
    ] = False,
) -> None:
    """Delete a table's files that nothing needs any more.

    \b
    Examples:
      sleeper gc flights --dry-run
      sleeper gc flights --orphans
    """
    with opened(context) as instance:
        instance.table(name)
        from sleeper.wiring.shaping import collect_table

        note(str(collect_table(instance, name, orphans, dry_run)))
