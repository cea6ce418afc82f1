"""`sleeper report`: the state of an instance and its tables."""

from typing import Annotated

import typer

from sleeper.cli.arguments import OutputKind, OutputOption, complete_table, use_instance
from sleeper.cli.output import note, print_listings
from sleeper.reports.output import ReportKind

_TEXT_ROWS_MAX = 100


def report(
    context: typer.Context,
    kind: Annotated[ReportKind, typer.Argument(metavar="REPORT", help=", ".join(ReportKind))],
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="NAME", help="Only this table.", autocompletion=complete_table
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            metavar="N",
            help=f"Maximum number of rows per listing. Default: {_TEXT_ROWS_MAX} for text, no "
            "limit for JSON.",
        ),
    ] = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Report on tables, files, jobs, tasks and queues.

    \b
    Examples:
      sleeper report partitions --table flights
      sleeper report ingest-jobs --output json | jq .reason
      sleeper report all
    """
    rows_max = _TEXT_ROWS_MAX if limit is None and output is OutputKind.TEXT else limit
    with use_instance(context) as instance:
        from sleeper.reports import service

        listings = service.report(instance, kind, table, rows_max)
        print_listings(listings, output)
        if not listings:
            note("no tables")
