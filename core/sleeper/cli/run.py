"""`sleeper run`: the background work of a local instance."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import note
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from sleeper.workers.runner import RunStatus

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def run_progress(latest: "list[RunStatus]") -> Iterator[Callable[["RunStatus"], None]]:
    """Gives a listener. It keeps the latest status in the list."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as line:

            def show(status: "RunStatus") -> None:
                latest[:] = [status]
                line.update(_now(status))

            yield show
    else:
        shown = [(0.0, "")]

        def tell(status: "RunStatus") -> None:
            latest[:] = [status]
            seconds, before = shown[0]
            now = _now(status)
            if now != before and status.seconds - seconds >= _SECONDS_BETWEEN_LINES:
                shown[0] = (status.seconds, now)
                note(now)

        yield tell


def summary_of_run(status: "RunStatus") -> str:
    """What a run did, in a line."""
    parts = [
        f"{pluralize(status.compactions_created, 'compaction job')} created",
        f"{pluralize(status.splits_sent, 'leaf', 'leaves')} queued for splitting",
        f"{pluralize(status.files_collected, 'file')} collected",
    ]
    if status.workers_died:
        parts.append(f"{pluralize(status.workers_died, 'worker')} died")
    end = "no work left" if status.idle else "work may remain"
    return f"{', '.join(parts)} in {status.seconds:.1f} s; {end}"


def _now(status: "RunStatus") -> str:
    """What runs and what waits, by queue."""
    queues = [
        f"{queue} {status.running.get(queue, 0):,} running, {waiting:,} waiting"
        for queue, waiting in status.waiting.items()
        if waiting or status.running.get(queue)
    ]
    return "; ".join(queues) or "idle"


def run(
    context: typer.Context,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when no work is left.")
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
        from sleeper.workers.runner import run_instance

        latest: list[RunStatus] = []
        try:
            with interrupted_by_sigterm(), run_progress(latest) as listener:
                run_instance(instance, until_idle, workers, listener)
        except KeyboardInterrupt:
            if until_idle:
                raise
            note("stopped")
        finally:
            if latest:
                note(summary_of_run(latest[-1]))
