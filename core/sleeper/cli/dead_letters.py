"""`sleeper dead-letters`: messages that were received too often."""

from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings
from sleeper.reports.output import pluralize

commands = typer.Typer(
    help="Messages that were received too often: list them, put them back, delete them.",
    no_args_is_help=True,
)

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Such as ingest.")]


@commands.command("list")
def list_letters(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Default: all queues.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="At most N of a queue.")
    ] = 100,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """List dead letters, the oldest first.

    On AWS that hides them from others for a moment.

    \b
    Example:
      sleeper dead-letters list ingest
    """
    with opened(context) as instance:
        from sleeper.reports.queues import list_dead_letters

        print_listings([list_dead_letters(instance, queue, limit)], output)


@commands.command("redrive")
def redrive(context: typer.Context, queue: QueueArgument) -> None:
    """Put all dead letters of a queue back on it, as never received.

    \b
    Example:
      sleeper dead-letters redrive ingest
    """
    with opened(context) as instance:
        from sleeper.reports.queues import redrive_dead_letters

        number = redrive_dead_letters(instance, queue)
        note(f"returned {pluralize(number, 'dead letter')} to queue {queue}")


@commands.command("delete")
def delete(
    context: typer.Context,
    queue: QueueArgument,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID")],
) -> None:
    """Delete a dead letter for good.

    \b
    Example:
      sleeper dead-letters delete ingest 5f0c6e9d
    """
    with opened(context) as instance:
        from sleeper.reports.queues import delete_dead_letter

        delete_dead_letter(instance, queue, message_id)
        note(f"deleted dead letter {message_id}")
