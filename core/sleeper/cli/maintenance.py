"""`sleeper compact`, `split` and `gc`: what `sleeper run` does by itself, for one table now."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import note
from sleeper.cli.table import TableName
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from sleeper.garbage_collection.collection import CollectionReport

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
        from sleeper.garbage_collection.service import snapshot_table

        taken = snapshot_table(instance, instance.tables.index.by_name(name), always=True)
        assert taken is not None
        note(f"stored a snapshot at transaction {taken.number:,}")
        if taken.trimmed_to:
            note(f"trimmed the log up to transaction {taken.trimmed_to:,}")


def compact(
    context: typer.Context,
    name: TableName,
    full: Annotated[
        bool, typer.Option("--all", help="All files of every leaf into one, whatever the strategy.")
    ] = False,
) -> None:
    """Create the compaction jobs that a table needs, and send them to the queue.

    `sleeper run` does them.

    \b
    Examples:
      sleeper compact flights
      sleeper compact flights --all
    """
    with opened(context) as instance:
        instance.table(name)
        from sleeper.compaction.plan import compact_table

        done = compact_table(instance, name, full)
        note(f"created {pluralize(done.created, 'compaction job')}")
        if done.is_waiting:
            note("the commit queue has a backlog: try again later")
        if done.references_pushed_down:
            note(f"pushed {pluralize(done.references_pushed_down, 'reference')} down to leaves")
        if done.released:
            note(f"released {pluralize(done.released, 'job')} with expired leases")
        if done.dispatched_again:
            note(f"resent {pluralize(done.dispatched_again, 'job')}")


def split(context: typer.Context, name: TableName) -> None:
    """Split those leaves of a table that hold more rows than its threshold.

    \b
    Example:
      sleeper split flights
    """
    with opened(context) as instance:
        instance.table(name)
        from sleeper.splitting.service import split_table

        results = split_table(instance, name)
        note(f"{pluralize(len(results), 'leaf', 'leaves')} over the threshold")
        for status, number in Counter(each.status for each in results).items():
            note(f"  {status.value}: {number:,}")
        leaves = sum(each.leaves for each in results)
        if leaves:
            note(f"created {pluralize(leaves, 'leaf', 'leaves')}")


def gc(
    context: typer.Context,
    name: TableName,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Also what dead runs left behind.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
) -> None:
    """Delete a table's files that nothing needs any more.

    \b
    Examples:
      sleeper gc flights --dry-run
      sleeper gc flights --orphans
    """
    with opened(context) as instance:
        from sleeper.garbage_collection.service import collect_table, collect_table_orphans

        done = collect_table(instance, name, dry_run)
        verb = "would delete" if dry_run else "deleted"
        _print_paths(done.paths)
        note(f"{verb} {pluralize(done.files, 'file')} ({done.bytes:,} bytes)")
        _note_versions(done)
        if orphans:
            left = collect_table_orphans(instance, name, dry_run)
            _print_paths(left.paths)
            note(f"{verb} {pluralize(left.objects, 'orphaned object')} ({left.bytes:,} bytes)")


def _note_versions(done: "CollectionReport") -> None:
    if done.held_back_by is not None:
        note(f"kept other files for {done.held_back_by}")
    if done.horizon_after > done.horizon_before:
        note(f"oldest readable version: {done.horizon_after:,}")


def _print_paths(paths: list[str]) -> None:
    for path in paths:
        typer.echo(path)
