"""Maintenance of one table (`compact`, `split`, `gc`, `snapshot`) and of queues (`dead-letters`).

`sleeper run` does the maintenance of tables in the background.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import LIMIT_MAX, OutputKind, OutputOption, TableName
from sleeper.cli.output import instance_command, listing_command, note, print_json
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

snapshots = typer.Typer(
    help="List and expire versions of snapshot tables; take state snapshots of any table.",
    no_args_is_help=True,
)
dead_letters = typer.Typer(help="List, redrive and delete dead letters.", no_args_is_help=True)

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue, such as ingest.")
]


@snapshots.command("versions")
@listing_command
def list_versions(instance: "Instance", name: TableName) -> "Iterable[Listing]":
    """List the versions of a snapshot table, newest first.

    Each can be queried with --as-of until it expires. `sleeper table history` lists all
    transactions of any table.

    \b
    Examples:
      sleeper snapshot versions customers
      sleeper snapshot versions customers --output json
    """
    from sleeper.reports.snapshot_versions import gather_snapshot_versions

    return [gather_snapshot_versions(instance.table(name)).listing()]


@snapshots.command("expire")
@listing_command
def expire_versions(
    instance: "Instance",
    name: TableName,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the versions that would expire.")
    ] = False,
) -> "Iterable[Listing]":
    """Expire the versions of a snapshot table that its properties do not keep.

    The properties are sleeper.table.snapshot.ttl and sleeper.table.snapshot.min.versions. Garbage
    collection expires versions too, but keeps a replaced one for its delay. A version stays while a
    hold keeps it. An expired version cannot be read, and garbage collection deletes its files.

    \b
    Examples:
      sleeper snapshot expire customers --dry-run
      sleeper snapshot expire customers
    """
    from sleeper.garbage_collection.service import expire_table_versions
    from sleeper.reports.snapshot_versions import describe_expiry

    report = expire_table_versions(instance, name, dry_run)
    return [describe_expiry(name, report, dry_run)]


@snapshots.command("take")
@instance_command
def take_snapshot(instance: "Instance", name: TableName) -> None:
    """Store a state snapshot of a table of any type, and trim its log.

    A state snapshot lists the partitions, files and references at one transaction, so that the
    state can be read without the whole log. It has no rows, and is not a version of a snapshot
    table. The log keeps the transactions that followers and holds need.

    \b
    Example:
      sleeper snapshot take flights
    """
    from sleeper.garbage_collection.service import snapshot_table

    taken = snapshot_table(instance, instance.tables.index.find(name), always=True)
    assert taken is not None
    note(f"stored a state snapshot at transaction {taken.number:,}")
    if taken.trimmed_to:
        note(f"trimmed the log up to transaction {taken.trimmed_to:,}")


@instance_command
def compact(
    instance: "Instance",
    name: TableName,
    full: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Compact all files of each leaf into one, regardless of the strategy, and rewrite "
            "files with deleted rows.",
        ),
    ] = False,
) -> None:
    """Create the compaction jobs of a table and queue them.

    `sleeper run` runs the jobs.

    \b
    Examples:
      sleeper compact flights
      sleeper compact flights --all
    """
    instance.table(name)
    from sleeper.compaction.plan import compact_table

    result = compact_table(instance, name, full)
    note(f"created {pluralize(result.created, 'compaction job')}")
    if result.is_waiting:
        note("the commit queue has a backlog: try again later")
    if result.references_pushed_down:
        note(f"pushed {pluralize(result.references_pushed_down, 'reference')} down to leaves")
    if result.released:
        note(f"released {pluralize(result.released, 'job')} with expired leases")
    if result.dispatched_again:
        note(f"resent {pluralize(result.dispatched_again, 'job')}")


@instance_command
def split(instance: "Instance", name: TableName) -> None:
    """Split the leaves of a table that exceed its threshold.

    \b
    Example:
      sleeper split flights
    """
    instance.table(name)
    from sleeper.splitting.service import split_table

    results = split_table(instance, name)
    note(f"{pluralize(len(results), 'leaf', 'leaves')} over the threshold")
    for status, number in Counter(each.status for each in results).items():
        note(f"  {status.value}: {number:,}")
    leaves = sum(each.leaves for each in results)
    if leaves:
        note(f"created {pluralize(leaves, 'leaf', 'leaves')}")


@instance_command
def gc(
    instance: "Instance",
    name: TableName,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Also delete files of failed runs.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the files without deleting them.")
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Delete files of a table that no readable version needs.

    \b
    Examples:
      sleeper gc flights --dry-run
      sleeper gc flights --orphans
      sleeper gc flights --output json | jq .bytes
    """
    from sleeper.garbage_collection.service import collect_table

    result = collect_table(instance, name, dry_run)
    is_text = output is OutputKind.TEXT
    for path in result.paths if is_text else ():
        typer.echo(path)
    members: dict[str, object] = {
        "table": name,
        "dry_run": dry_run,
        "files": result.files,
        "bytes": result.bytes,
        "kept_for": result.blocker,
        "oldest_readable_transaction": max(result.horizon_before, result.horizon_after),
        "paths": result.paths,
    }
    _note_deleted(pluralize(result.files, "file"), result.bytes, dry_run)
    if result.blocker is not None:
        note(f"kept other files for {result.blocker}")
    if result.horizon_after > result.horizon_before:
        note(f"oldest readable version: {result.horizon_after:,}")
    if orphans:
        members |= _collect_orphans(instance, name, dry_run, is_text)
    if not is_text:
        print_json(members)


def _collect_orphans(
    instance: "Instance", table: str, dry_run: bool, is_text: bool
) -> dict[str, object]:
    """Deletes orphans, prints what is deleted, and returns it as members of the result."""
    from sleeper.garbage_collection.service import collect_table_orphans

    result = collect_table_orphans(instance, table, dry_run)
    for path in result.paths if is_text else ():
        typer.echo(path)
    _note_deleted(pluralize(result.objects, "orphaned object"), result.bytes, dry_run)
    return {
        "orphaned_objects": result.objects,
        "orphaned_bytes": result.bytes,
        "orphaned_paths": result.paths,
    }


def _note_deleted(count: str, size_bytes: int, dry_run: bool) -> None:
    note(f"{'would delete' if dry_run else 'deleted'} {count} ({size_bytes:,} bytes)")


@dead_letters.command("list")
@listing_command
def list_letters(
    instance: "Instance",
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Name of the queue. Default: all.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=1, max=LIMIT_MAX, metavar="N", help="Maximum number per queue."
        ),
    ] = 100,
) -> "Iterable[Listing]":
    """List dead letters, oldest first.

    On AWS, other receivers do not see the listed messages for a short time.

    \b
    Example:
      sleeper dead-letters list ingest
    """
    from sleeper.reports.jobs import list_dead_letters

    return [list_dead_letters(instance, queue, limit)]


@dead_letters.command("redrive")
@instance_command
def redrive(instance: "Instance", queue: QueueArgument) -> None:
    """Return all dead letters to their queue with a receive count of 0.

    \b
    Example:
      sleeper dead-letters redrive ingest
    """
    from sleeper.reports.jobs import redrive_dead_letters

    number = redrive_dead_letters(instance, queue)
    note(f"returned {pluralize(number, 'dead letter')} to queue {queue}")


@dead_letters.command("delete")
@instance_command
def delete_letter(
    instance: "Instance",
    queue: QueueArgument,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID")],
) -> None:
    """Delete a dead letter.

    \b
    Example:
      sleeper dead-letters delete ingest 5f0c6e9d
    """
    from sleeper.reports.jobs import delete_dead_letter

    delete_dead_letter(instance, queue, message_id)
    note(f"deleted dead letter {message_id}")
