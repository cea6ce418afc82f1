"""`sleeper pause` and `resume`: the schedules of an AWS instance."""

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import note
from sleeper.reports.listing import counted


def pause(context: typer.Context) -> None:
    """Stop what starts background work of an AWS instance, and print what that is.

    Jobs that are on queues already are still done. A deployment starts all of it again.

    \b
    Example:
      sleeper --instance aws:my-instance pause
    """
    _switch(context, on=False)


def resume(context: typer.Context) -> None:
    """Start what `sleeper pause` stopped, and print what that is.

    \b
    Example:
      sleeper --instance aws:my-instance resume
    """
    _switch(context, on=True)


def _switch(context: typer.Context, on: bool) -> None:
    with opened(context) as instance:
        rules = instance.switch_schedules(on)
        for rule in rules:
            typer.echo(rule)
        note(f"{counted(len(rules), 'schedule')} {'resumed' if on else 'paused'}")
