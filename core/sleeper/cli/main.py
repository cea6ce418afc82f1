"""The `sleeper` command."""

import io
import sys
from typing import Annotated, Any

import typer

from sleeper import __version__
from sleeper.cli import (
    bulk_import,
    code,
    dead_letters,
    follower,
    hold,
    ingest,
    instance,
    maintenance,
    queries,
    query,
    report,
    run,
    serve,
    table,
)
from sleeper.cli.failures import Commands
from sleeper.instance import INSTANCE_VARIABLE

_READING_ORDER = ("instance", "table", "ingest", "query", "sql", "run", "report")


class _CommandsInOrder(Commands):
    """Lists the commands as a newcomer meets them, and not groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        others = [name for name in super().list_commands(ctx) if name not in _READING_ORDER]
        return [*_READING_ORDER, *others]


app = typer.Typer(
    cls=_CommandsInOrder,
    name="sleeper",
    help="A record store that costs nothing while it sleeps.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(instance.commands, name="instance")
app.add_typer(table.commands, name="table")
app.command("ingest")(ingest.ingest)
app.command("bulk-import")(bulk_import.bulk_import)
app.command("bulk-export")(bulk_import.bulk_export)
app.command("query")(query.query)
app.command("sql")(query.sql)
app.command("run")(run.run)
app.command("serve")(serve.serve)
app.command("compact")(maintenance.compact)
app.command("split")(maintenance.split)
app.command("gc")(maintenance.gc)
app.command("report")(report.report)
app.command("pause")(instance.pause)
app.command("resume")(instance.resume)
app.add_typer(queries.commands, name="queries")
app.add_typer(code.commands, name="code")
app.add_typer(dead_letters.commands, name="dead-letters")
app.add_typer(hold.commands, name="hold")
app.add_typer(follower.commands, name="follower")
app.add_typer(maintenance.commands, name="snapshot")


def _print_version(wanted: bool) -> None:
    if wanted:
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
            help="The instance: a folder, or aws:INSTANCE_ID.",
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A record store that costs nothing while it sleeps.

    Results go to standard output; progress, notes and errors go to standard error.
    Exit status is 0 for done, 1 for failed, 2 for wrong usage. SLEEPER_DEBUG=1 shows where
    an error came from.
    """
    context.obj = where


def main() -> None:
    """Runs the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal of another encoding has no lines and bars: a report must not fail on them.
        sys.stdout.reconfigure(errors="replace")
    app(prog_name="sleeper")
