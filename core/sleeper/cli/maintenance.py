"""`sleeper compact`, `split` and `gc`: what `sleeper run` does by itself, for one table now."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import note
from sleeper.cli.table import TableName
from sleeper.reports.output import counted

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
        note(f"the state at transaction {taken.number:,} is stored")
        if taken.trimmed_to:
            note(f"the log is trimmed up to transaction {taken.trimmed_to:,}")


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
        note(f"{counted(done.created, 'compaction job')} created")
        if done.is_waiting:
            note("too many commits of earlier jobs wait for the committer: try again later")
        if done.references_pushed_down:
            note(f"{counted(done.references_pushed_down, 'reference')} pushed down to leaves")
        if done.released:
            note(f"{counted(done.released, 'job')} released whose lease had expired")
        if done.dispatched_again:
            note(f"{counted(done.dispatched_again, 'job')} sent again")


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
        note(f"{counted(len(results), 'leaf', 'leaves')} over the threshold")
        for status, number in Counter(each.status for each in results).items():
            note(f"  {status.value}: {number:,}")
        leaves = sum(each.leaves for each in results)
        if leaves:
            note(f"{counted(leaves, 'new leaf', 'new leaves')}")


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
        verb = "would be deleted" if dry_run else "deleted"
        _print_paths(done.paths)
        note(f"{counted(done.files, 'file')} of {done.bytes:,} bytes {verb}")
        _note_versions(done)
        if orphans:
            left = collect_table_orphans(instance, name, dry_run)
            _print_paths(left.paths)
            what = counted(left.objects, "object")
            note(f"{what} of {left.bytes:,} bytes, left by dead runs, {verb}")


def _note_versions(done: "CollectionReport") -> None:
    if done.held_back_by is not None:
        note(f"others are kept for {done.held_back_by}")
    if done.horizon_after > done.horizon_before:
        note(f"versions from {done.horizon_after:,} on can be read")


def _print_paths(paths: list[str]) -> None:
    for path in paths:
        typer.echo(path)
