"""`sleeper dead-letters`: messages that were received too often."""

from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import note

commands = typer.Typer(
    help="Messages that were received too often. `sleeper report dead-letters` lists them.",
    no_args_is_help=True,
)

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Such as ingest.")]


@commands.command("redrive")
def redrive(context: typer.Context, queue: QueueArgument) -> None:
    """Put all dead letters of a queue back on it, as never received.

    \b
    Example:
      sleeper dead-letters redrive ingest
    """
    with opened(context) as instance:
        from sleeper.wiring.dead_letters import redrive_dead_letters

        number = redrive_dead_letters(instance, queue)
        note(f"{number:,} dead letter{'' if number == 1 else 's'} put back on queue {queue}")


@commands.command("delete")
def delete(
    context: typer.Context,
    queue: QueueArgument,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID")],
) -> None:
    """Delete a dead letter for good."""
    with opened(context) as instance:
        from sleeper.wiring.dead_letters import delete_dead_letter

        delete_dead_letter(instance, queue, message_id)
        note(f"dead letter {message_id} is deleted")
