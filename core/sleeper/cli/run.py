"""`sleeper run`: the background work of a local instance."""

from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import note
from sleeper.cli.run_progress import run_progress, summary_of_run
from sleeper.wiring.termination import terminated_like_interrupted

if TYPE_CHECKING:
    from sleeper.wiring.runner import RunStatus


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

    Goes on until it is interrupted, or with --until-idle until nothing is left. It may be
    stopped or killed at any time: the next run goes on where it was. An AWS instance does its
    background work by itself.

    \b
    Examples:
      sleeper run
      sleeper run --until-idle --workers 2
    """
    with opened(context) as instance:
        from sleeper.wiring.runner import run_instance

        latest: list[RunStatus] = []
        try:
            with terminated_like_interrupted(), run_progress(latest) as listener:
                run_instance(instance, until_idle, workers, listener)
        except KeyboardInterrupt:
            if until_idle:
                raise
            note("stopped")
        finally:
            if latest:
                note(summary_of_run(latest[-1]))
