"""`sleeper export-queue`: queues of exports to other systems."""

import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import LIMIT_MAX, OutputKind, OutputOption, complete_names
from sleeper.cli.options import options_of
from sleeper.cli.output import (
    RowFormat,
    instance_command,
    listing_command,
    note,
    open_row_sink,
    print_listings,
    show_stages,
)
from sleeper.errors import InvalidRequestError
from sleeper.export_queue.parsing import NewQueue, split_names
from sleeper.export_queue.store import open_export_store

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

export_queues = typer.Typer(
    help="Create, watch and repair export queues, which send changes to other systems.",
    no_args_is_help=True,
)


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the matching export queues of a local instance."""
    return complete_names(
        context,
        incomplete,
        lambda instance: [each.name for each in open_export_store(instance).list()],
    )


QueueName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the export queue.", autocompletion=complete_queue),
]


@export_queues.command("create")
@instance_command
@options_of(NewQueue)
def create(instance: "Instance", new: NewQueue) -> None:
    """Create an export queue on a table.

    An export is a key with values and a sequence number, that of its transaction. It leaves at
    least once if the transaction is committed, and never otherwise. `sleeper run` exports, or the
    functions of an AWS instance. The source, keys, values and number of buckets never change.

    \b
    Examples:
      sleeper export-queue create copy --table flights --on ingest --key tailnum --value dest \\
        --exporter table:destinations
      sleeper export-queue create shop --table orders --on ingest --key id --value state,total \\
        --exporter 'postgres://writer@db.example/shop?table=orders' --password env:SHOP_PASSWORD
      sleeper export-queue create index --table counts --on transaction --key word \\
        --value old:LongType,new:LongType --exporter python:index
    """
    from sleeper.export_queue.service import create_queue

    is_known = any(each.name == new.name for each in open_export_store(instance).list())
    keys = [name for text in new.keys for name in split_names(text)]
    values = [name for text in new.values for name in split_names(text)]
    queue = create_queue(instance, replace(new, keys=keys, values=values))
    done, way = "changed" if is_known else "created", f"{new.table} on {queue.source.value}"
    note(f"{done} export queue {new.name}: {way} -> {queue.exporter.shown}")


@export_queues.command("list")
@listing_command
def list_all(instance: "Instance") -> "Iterable[Listing]":
    """List the export queues.

    The lag is the number of transactions whose exports are not taken up: changes of rows, or for
    queues on others, compactions or transactions with exports. Exports are pending until the
    receiver has them, and dead if it refused them too often.

    \b
    Examples:
      sleeper export-queue list
      sleeper export-queue list --output json
    """
    from sleeper.export_queue.listings import list_export_queues

    return [list_export_queues(instance)]


@export_queues.command("status")
@instance_command
def status(instance: "Instance", name: QueueName, output: OutputOption = OutputKind.TEXT) -> None:
    """Show how far an export queue is, and the buckets whose last call failed.

    \b
    Examples:
      sleeper export-queue status shop
      sleeper export-queue status shop --output json | jq '.lag, .pending'
    """
    from sleeper.export_queue.control import queue_status
    from sleeper.export_queue.listings import describe_status

    print_listings([describe_status(queue_status(instance, name))], output)


@export_queues.command("peek")
@instance_command
def peek(
    instance: "Instance",
    name: QueueName,
    bucket: Annotated[
        int | None, typer.Option("--bucket", metavar="N", help="Only this bucket. Default: all.")
    ] = None,
    dead: Annotated[
        bool,
        typer.Option("--dead", help="Dead letters, with the errors, instead of pending exports."),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=1, max=LIMIT_MAX, metavar="N", help="Maximum number of exports."
        ),
    ] = 20,
    row_format: Annotated[
        RowFormat, typer.Option("--format", "-o", "--output", help="Format of the rows.")
    ] = RowFormat.TABLE,
) -> None:
    """Print the first pending exports, and change nothing.

    A row has the bucket, the sequence number, whether the key is gone, the key and the values.

    \b
    Examples:
      sleeper export-queue peek shop
      sleeper export-queue peek shop --bucket 17 --format json
      sleeper export-queue peek shop --dead
    """
    from sleeper.export_queue import control
    from sleeper.export_queue.control import peeked_rows, peeked_schema
    from sleeper.export_queue.registration import find_queue
    from sleeper.query.rows.output import ROW_OUTPUTS
    from sleeper.reports.output import pluralize

    schema = peeked_schema(find_queue(instance, name).definition, dead)
    peeked = control.peek(instance, name, bucket, limit, dead)
    with open_row_sink(row_format, None) as sink:
        count = ROW_OUTPUTS[row_format](schema, peeked_rows(schema, peeked), sink)
    note(f"{pluralize(count, 'dead export' if dead else 'pending export')}")


@export_queues.command("drain")
@instance_command
def drain(
    instance: "Instance",
    name: QueueName,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=0,
            metavar="N",
            help="Longest duration, in which calls of an unavailable receiver are repeated. "
            "Default: until the queue is empty or the receiver is unavailable.",
        ),
    ] = None,
) -> None:
    """Take up and export what a queue has, in this process.

    Calls failed buckets at once, whatever their waits are, and refused exports until they are
    dead. Ends with status 1 if exports remain, for example because the receiver is unavailable
    or another worker has their bucket.

    \b
    Examples:
      sleeper export-queue drain shop
      sleeper export-queue drain shop --seconds 60
    """
    from sleeper.export_queue.control import queue_status
    from sleeper.export_queue.listings import QueueState
    from sleeper.export_queue.queue_worker import drain_now
    from sleeper.reports.output import pluralize

    start = time.monotonic()
    with show_stages(f"export queue {name}") as on_stage:
        done = drain_now(
            instance, name, seconds, lambda count: on_stage(pluralize(count, "export"))
        )
    took = time.monotonic() - start
    dead = f", {pluralize(done.dead, 'dead export')}" if done.dead else ""
    note(f"{pluralize(done.exports, 'export')} of queue {name}{dead}, {took:.1f} s")
    status = queue_status(instance, name)
    if status.pending or status.lag:
        problem = f": {done.problems[-1]}" if done.problems else ""
        if status.state is QueueState.PAUSED:
            problem = ": it is paused (continue it with `sleeper export-queue resume`)"
        raise InvalidRequestError(
            f"export queue {name!r} is not empty: {status.describe_left()}{problem}"
        )


@export_queues.command("pause")
@instance_command
def pause(instance: "Instance", name: QueueName) -> None:
    """Pause a queue: its exporter gets no more exports. They stay pending.

    \b
    Example:
      sleeper export-queue pause shop
    """
    from sleeper.export_queue.control import pause_queue

    pause_queue(instance, name)
    note(f"paused export queue {name}")


@export_queues.command("resume")
@instance_command
def resume(instance: "Instance", name: QueueName) -> None:
    """Resume a paused queue, and call failed buckets at once.

    \b
    Example:
      sleeper export-queue resume shop
    """
    from sleeper.export_queue.control import resume_queue
    from sleeper.reports.output import pluralize

    due = resume_queue(instance, name)
    failed = f", {pluralize(due, 'failed bucket')} due now" if due else ""
    note(f"resumed export queue {name}{failed}")


@export_queues.command("splits")
@instance_command
def splits(
    instance: "Instance",
    name: QueueName,
    buckets_per_tablet: Annotated[
        int | None,
        typer.Option(
            "--buckets-per-tablet", min=1, metavar="N", help="Buckets between two. Default: 10."
        ),
    ] = None,
) -> None:
    """Print recommended split points of a queue's storage, one per line: NAME:BUCKET.

    The bucket is in hexadecimal, of equal width. For stores that keep a queue in ranges of rows.

    \b
    Example:
      sleeper export-queue splits shop --buckets-per-tablet 17
    """
    from sleeper.export_queue.control import BUCKETS_PER_TABLET_DEFAULT, split_points
    from sleeper.export_queue.registration import find_queue

    queue = find_queue(instance, name).definition
    width = buckets_per_tablet or BUCKETS_PER_TABLET_DEFAULT
    for point in split_points(name, queue.buckets, width):
        typer.echo(point)


@export_queues.command("redrive")
@instance_command
def redrive(instance: "Instance", name: QueueName) -> None:
    """Make dead letters pending exports again, before newer exports of their buckets.

    \b
    Example:
      sleeper export-queue redrive shop
    """
    from sleeper.export_queue import control
    from sleeper.reports.output import pluralize

    count = control.redrive(instance, name)
    note(f"{pluralize(count, 'dead export')} of queue {name} pending again")


@export_queues.command("delete")
@instance_command
def delete(
    instance: "Instance",
    name: QueueName,
    discard: Annotated[
        bool,
        typer.Option("--discard", help="Lose pending and dead exports, and those not taken up."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete an export queue. The receiver keeps what it has.

    A queue with exports is not deleted, unless --discard loses them. Asks for confirmation on a
    terminal.

    \b
    Examples:
      sleeper export-queue delete shop
      sleeper export-queue delete shop --discard --yes
    """
    from sleeper.export_queue.service import delete_queue

    if not yes and sys.stdin.isatty():
        lost = " and its pending exports" if discard else ""
        typer.confirm(f"delete export queue {name}{lost}?", abort=True, err=True)
    delete_queue(instance, name, discard)
    note(f"deleted export queue {name}")
