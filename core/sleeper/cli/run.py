"""`sleeper run`: the background work of a local instance."""

from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import note


def run(
    context: typer.Context,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when nothing is left to do.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="Worker processes. Default: property sleeper.local.workers.",
        ),
    ] = None,
) -> None:
    """Do a local instance's background work: queued jobs, compaction, splitting, collection.

    Goes on until it is interrupted, or with --until-idle until nothing is left.

    \b
    Examples:
      sleeper run
      sleeper run --until-idle --workers 2
    """
    with opened(context) as instance:
        from sleeper.wiring.runner import run_instance

        run_instance(instance, until_idle, workers, note)
