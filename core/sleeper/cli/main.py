"""The `sleeper` command."""

import atexit
import io
import os
import sys
import threading
from typing import Annotated, Any, NoReturn

import typer

from sleeper import __version__
from sleeper.cli import (
    adapter,
    adjunct,
    bulk,
    changes,
    delete,
    export_queue,
    holds,
    ingest,
    instance,
    maintenance,
    purge,
    query,
    run,
    stash,
    stash_schedule,
    table,
    versions,
)
from sleeper.cli.output import Commands
from sleeper.instance import INSTANCE_VARIABLE

_FIRST_COMMANDS = ("instance", "table", "ingest", "query", "sql", "run", "report")


class _OrderedCommands(Commands):
    """The root command; its help lists the commands for a first use first."""

    def list_commands(self, ctx: Any) -> list[str]:
        others = [name for name in super().list_commands(ctx) if name not in _FIRST_COMMANDS]
        return [*_FIRST_COMMANDS, *others]


app = typer.Typer(
    cls=_OrderedCommands,
    name="sleeper",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(instance.commands, name="instance")
app.add_typer(table.commands, name="table")
app.command("ingest")(ingest.ingest)
app.command("bulk-import")(bulk.bulk_import)
app.command("bulk-export")(bulk.bulk_export)
app.command("query")(query.query)
app.command("sql")(query.sql)
app.command("run")(run.run)
app.command("serve")(run.serve)
app.command("delete")(delete.delete)
app.command("undo")(versions.undo)
app.command("changes")(changes.changes)
app.command("purge")(purge.purge)
app.command("compact")(maintenance.compact)
app.command("split")(maintenance.split)
app.command("gc")(maintenance.gc)
app.command("report")(instance.report)
app.command("backup")(instance.backup)
app.command("pause")(instance.pause)
app.command("resume")(instance.resume)
app.add_typer(adapter.adapters, name="adapter")
app.add_typer(adjunct.adjunct, name="adjunct")
app.add_typer(export_queue.export_queues, name="export-queue")
app.add_typer(query.queries, name="queries")
app.add_typer(instance.code, name="code")
app.add_typer(maintenance.dead_letters, name="dead-letters")
app.add_typer(holds.holds, name="hold")
app.add_typer(holds.followers, name="follower")
app.add_typer(maintenance.snapshots, name="snapshot")
app.add_typer(stash.stash, name="stash")
stash.stash.command("schedule")(stash_schedule.schedule)
stash.stash.command("request")(stash_schedule.request)
stash.stash.command("prune")(stash_schedule.prune)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"sleeper {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    where: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="WHERE",
            envvar=INSTANCE_VARIABLE,
            help="Folder of the instance, or aws:INSTANCE_ID.",
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Sleeper, a serverless record store for large tables of keyed rows.

    Prints results to standard output, and progress, notes and errors to standard error. The
    exit status is 0 for success, 1 for a failure and 2 for wrong usage. SLEEPER_DEBUG=1 prints
    the traceback of an error.
    """
    context.obj = where


def main() -> None:
    """Runs the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The terminal's encoding may lack characters of tables and bars.
        sys.stdout.reconfigure(errors="replace")
    try:
        app(prog_name="sleeper")
    except SystemExit as end:
        if "datafusion" in sys.modules and isinstance(end.code, int | None):
            _end_process(end.code or 0)
        raise


def _end_process(status: int) -> NoReturn:
    """Ends the process as the interpreter does, but without its finalization.

    A thread of the engine that still ends a cancelled plan would abort the process then.
    """
    threading._shutdown()  # type: ignore[attr-defined] # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or 1
    os._exit(status)
