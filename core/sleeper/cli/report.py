"""`sleeper report`: tables, files, jobs, tasks and queues as text, JSON or an HTML page."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import LIMIT_MAX, OutputKind, OutputOption, complete_table
from sleeper.cli.output import RowFormat, instance_command, note, open_row_sink, print_listings
from sleeper.reports.output import ReportKind, pluralize

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.service import TablePage

_TEXT_ROWS_MAX = 100
_PAGE_ROWS_MAX = 1000
_TABLES_MAX = 100


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
    offset: Annotated[
        int,
        typer.Option(
            "--offset",
            min=0,
            max=LIMIT_MAX,
            metavar="N",
            help="Skip the first N tables, in the order of names. Text and HTML have at most "
            f"{_TABLES_MAX} tables.",
        ),
    ] = 0,
    output: Annotated[
        ReportOutput,
        typer.Option("--output", "-o", help="Output format. HTML is one page without scripts."),
    ] = ReportOutput.TEXT,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="The file to write, with --output html."),
    ] = None,
) -> None:
    """Report on tables, files, jobs, tasks, queues and costs.

    The report on costs is not in `all`.

    \b
    Examples:
      sleeper report partitions --table flights
      sleeper report ingest-jobs --output json | jq .reason
      sleeper report costs
      sleeper report all
      sleeper report all --output html --file report.html
    """
    if output is ReportOutput.HTML:
        _write_page(instance, kind, table, limit, offset, file)
        return
    if file is not None:
        raise typer.BadParameter("--file needs --output html")
    rows_max = _TEXT_ROWS_MAX if limit is None and output is ReportOutput.TEXT else limit
    from sleeper.reports import service

    tables = service.TablePage(offset)
    if output is ReportOutput.TEXT:
        tables = service.TablePage(offset, _TABLES_MAX)
    listings = service.report(instance, kind, table, rows_max, tables)
    print_listings(listings, OutputKind(output.value))
    _note_omission(instance, kind, table, tables)
    if not listings:
        note("no tables")


def _note_omission(
    instance: "Instance", kind: ReportKind, table: str | None, tables: "TablePage"
) -> None:
    from sleeper.reports.service import count_omitted

    omitted = count_omitted(instance, kind, table, tables)
    if omitted:
        note(f"{pluralize(omitted, 'more table')}: see --offset {tables.offset + tables.count}")


def _write_page(
    instance: "Instance",
    kind: ReportKind,
    table: str | None,
    limit: int | None,
    offset: int,
    file: Path | None,
) -> None:
    from sleeper.reports.html.gather import gather_page
    from sleeper.reports.html.page import format_page
    from sleeper.reports.service import TablePage

    tables = TablePage(offset, _TABLES_MAX)
    page = gather_page(instance, kind, table, _PAGE_ROWS_MAX if limit is None else limit, tables)
    with open_row_sink(RowFormat.TABLE, file) as sink:
        sink.write(format_page(page).encode())
    if file is not None:
        note(f"wrote {file}")
        _note_omission(instance, kind, table, tables)


@instance_command
def status(instance: "Instance", output: OutputOption = OutputKind.TEXT) -> None:
    """Show everything that is overdue, failing, lagging or dead.

    Covers tables, jobs, queues, schedules and all systems. The exit status is 1 if there is
    something.

    \b
    Examples:
      sleeper status
      sleeper status --output json | jq -r .reason
    """
    from sleeper.reports.status import report_status

    listing = report_status(instance)
    print_listings([listing], output)
    if listing.rows:
        raise typer.Exit(1)
