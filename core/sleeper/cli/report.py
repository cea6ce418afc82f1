"""`sleeper report`: tables, files, jobs, tasks and queues as text, JSON or an HTML page."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import LIMIT_MAX, OutputKind, complete_table
from sleeper.cli.output import RowFormat, instance_command, note, open_row_sink, print_listings
from sleeper.reports.output import ReportKind

if TYPE_CHECKING:
    from sleeper.instance import Instance

_TEXT_ROWS_MAX = 100
_PAGE_ROWS_MAX = 1000


class ReportOutput(StrEnum):
    """The formats of the reports."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


@instance_command
def report(
    instance: "Instance",
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
            max=LIMIT_MAX,
            metavar="N",
            help=f"Maximum number of rows per listing. Default: {_TEXT_ROWS_MAX} for text, "
            f"{_PAGE_ROWS_MAX:,} for HTML, no limit for JSON.",
        ),
    ] = None,
    output: Annotated[
        ReportOutput,
        typer.Option("--output", "-o", help="Output format. HTML is one page without scripts."),
    ] = ReportOutput.TEXT,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="The file to write, with --output html."),
    ] = None,
) -> None:
    """Report on tables, files, jobs, tasks and queues.

    \b
    Examples:
      sleeper report partitions --table flights
      sleeper report ingest-jobs --output json | jq .reason
      sleeper report all
      sleeper report all --output html --file report.html
    """
    if output is ReportOutput.HTML:
        _write_page(instance, kind, table, limit, file)
        return
    if file is not None:
        raise typer.BadParameter("--file needs --output html")
    rows_max = _TEXT_ROWS_MAX if limit is None and output is ReportOutput.TEXT else limit
    from sleeper.reports import service

    listings = service.report(instance, kind, table, rows_max)
    print_listings(listings, OutputKind(output.value))
    if not listings:
        note("no tables")


def _write_page(
    instance: "Instance",
    kind: ReportKind,
    table: str | None,
    limit: int | None,
    file: Path | None,
) -> None:
    from sleeper.reports.html.gather import gather_page
    from sleeper.reports.html.page import format_page

    page = gather_page(instance, kind, table, _PAGE_ROWS_MAX if limit is None else limit)
    with open_row_sink(RowFormat.TABLE, file) as sink:
        sink.write(format_page(page).encode())
    if file is not None:
        note(f"wrote {file}")
