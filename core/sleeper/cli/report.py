"""`sleeper report`: the state of things."""

from typing import Annotated

import typer

from sleeper.cli.completion import table_names
from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings
from sleeper.reports.output import ReportKind

_TEXT_ROWS = 100


def report(
    context: typer.Context,
    what: Annotated[ReportKind, typer.Argument(metavar="REPORT", help=", ".join(ReportKind))],
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="NAME", help="Only of this table.", autocompletion=table_names
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            metavar="N",
            help=f"At most N rows a listing. Default: {_TEXT_ROWS} as text, all as JSON.",
        ),
    ] = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Report on tables, files, partitions, jobs, tasks, queries or dead letters.

    \b
    Examples:
      sleeper report partitions --table flights
      sleeper report ingest-jobs --output json | jq .reason
      sleeper report all
    """
    rows_max = _TEXT_ROWS if limit is None and output is OutputKind.TEXT else limit
    with opened(context) as instance:
        from sleeper.reports.service import report as gather

        listings = gather(instance, what, table, rows_max)
        print_listings(listings, output)
        if not listings:
            note("no tables")
