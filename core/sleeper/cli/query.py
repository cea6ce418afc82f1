"""`sleeper query`, `sleeper sql` and `sleeper queries`."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sleeper.cli.arguments import (
    LIMIT_MAX,
    KeysOption,
    OutputKind,
    OutputOption,
    RangesOption,
    RegionsOption,
    TableName,
    use_instance,
)
from sleeper.cli.output import RowFormat, instance_command, note, open_row_sink, print_listings
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.query.result import QueryResult

queries = typer.Typer(help="Queue queries and show their status.", no_args_is_help=True)

FormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", help="Default: the format of the --output suffix, or table."),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rows to this file. The name of a format, such as json, selects the format "
        "of standard output instead.",
    ),
]


@instance_command
def query(
    instance: "Instance",
    name: TableName,
    keys: KeysOption = None,
    ranges: RangesOption = None,
    regions: RegionsOption = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Columns to print, in order.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, max=LIMIT_MAX, metavar="N", help="Maximum number of rows."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="N|TIME|AGE",
            help="Read the version of transaction N, or of a time (ISO 8601, UTC without a zone) "
            "or an age (such as 30m, 2h or 2d).",
        ),
    ] = None,
    filters: Annotated[
        str,
        typer.Option(
            "--filters",
            metavar="FILTER,...",
            help="Omit rows: ageOff(FIELD,MILLIS) omits older ones, jsonContains(FIELD,JSON) those "
            "whose document does not contain the value.",
        ),
    ] = "",
    aggregations: Annotated[
        str,
        typer.Option(
            "--aggregations",
            metavar="OP(FIELD),...",
            help="Combine rows with equal keys: sum, min, max, map_sum, map_min or map_max of each "
            "value field.",
        ),
    ] = "",
    iterator: Annotated[
        str,
        typer.Option("--iterator", metavar="NAME", help="Iterator to apply last."),
    ] = "",
    iterator_config: Annotated[
        str,
        typer.Option("--iterator-config", metavar="TEXT", help="Iterator configuration."),
    ] = "",
    row_format: FormatOption = None,
    output: FileOption = None,
) -> None:
    """Print rows of a table by key, range or region.

    Prints each row in any of the given keys, ranges and regions once, or all rows if none is
    given.

    \b
    Examples:
      sleeper query flights --key N14228 --columns sched_dep,origin,dest
      sleeper query flights --range N10:N11 --limit 20
      sleeper query flights --range :N2 --format csv | head
      sleeper query places --key '"Paris, Texas",7'
      sleeper query flights --as-of 3 --output flights.parquet
      sleeper query flights --as-of 2h --key N14228
      sleeper query flights --region '{"tailnum":{"min":"N1","max":"N2"}}'
      sleeper query orders --filters 'jsonContains(doc,{"customer":{"name":"Ada"}})'
    """
    row_format, output = _choose_output(row_format, output)
    instance.table(name)  # fails before the engine takes a second to load
    from sleeper.cli.arguments import build_query
    from sleeper.processing.text import iterator_call
    from sleeper.query.service import open_query, read_schema
    from sleeper.statestore.version import parse_version_text

    start = time.monotonic()
    request = build_query(
        read_schema(instance, name),
        keys or (),
        ranges or (),
        regions or (),
        columns,
        limit,
        None if as_of is None else parse_version_text(as_of),
        filters,
        aggregations,
        iterator_call(iterator, iterator_config),
    )
    _print_rows(open_query(instance, name, request), row_format, output, start)


def sql(
    context: typer.Context,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="STATEMENT", help="A SELECT statement, or - for stdin."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the statement from this file."),
    ] = None,
    as_of: Annotated[
        list[str] | None,
        typer.Option(
            "--as-of",
            metavar="N|TIME|AGE",
            help="Read the version of transaction N, or of a time (ISO 8601, UTC without a zone) "
            "or an age (such as 30m, 2h or 2d). A time or an age applies to all tables; TABLE=N if "
            "the statement names several. Repeatable.",
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUE",
            help="The value of a parameter such as $id. A number, true, false, null, or text, in "
            "double quotes if it looks like one of the others. Repeatable.",
        ),
    ] = None,
    row_format: FormatOption = None,
    output: FileOption = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Run the statement, and print the leaves, files, bytes and pages that it read of "
            "each table instead of its rows. As JSON with --output json.",
        ),
    ] = False,
) -> None:
    """Run an SQL query and print its rows.

    The query can join all tables of the instance.

    \b
    Examples:
      sleeper sql "SELECT origin, count(*) FROM flights GROUP BY origin"
      sleeper sql "SELECT * FROM planes WHERE year < 1960" --output old.parquet
      sleeper sql "SELECT count(*) FROM flights" --as-of 3
      sleeper sql "SELECT count(*) FROM flights" --as-of 2026-01-31T12:00:00Z
      sleeper sql 'SELECT * FROM flights WHERE tailnum = $tail' --param tail=N14228
      sleeper sql --explain "SELECT * FROM flights WHERE tailnum = 'N14228'"
      sleeper sql --file monthly.sql --output monthly.csv
      cat monthly.sql | sleeper sql -
    """
    statement = _read_statement(statement, file)
    values = _parse_parameters(parameters or ())
    if explain:
        _explain(context, statement, as_of or (), values, row_format, output)
        return
    row_format, output = _choose_output(row_format, output)
    with use_instance(context) as instance:
        from sleeper.query.sql.service import open_sql
        from sleeper.query.sql.tables import parse_as_of_options

        start = time.monotonic()
        versions = parse_as_of_options(as_of or ())
        result = open_sql(instance, statement, as_of=versions, parameters=values)
        _print_rows(result, row_format, output, start)


def _read_statement(statement: str | None, file: Path | None) -> str:
    """Returns the statement that is given directly, by a file, or by standard input."""
    if (statement is None) == (file is None):
        raise typer.BadParameter("expected a statement, - for standard input, or --file FILE")
    if file is not None:
        from sleeper.admin.tables import read_text

        return read_text(file, "statement file")
    return sys.stdin.read() if statement == "-" else str(statement)


def _parse_parameters(options: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"--param {option!r} (expected NAME=VALUE)")
        if name in values:
            raise typer.BadParameter(f"--param {name} is given twice (expected one value)")
        values[name] = _parse_value(text)
    return values


def _parse_value(text: str) -> Any:
    """Returns the value of a JSON literal, and other text as it is."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, list | dict) else value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _explain(
    context: typer.Context,
    statement: str,
    as_of: Sequence[str],
    parameters: dict[str, Any],
    row_format: RowFormat | None,
    output: Path | None,
) -> None:
    kinds = {str(kind): kind for kind in OutputKind}
    kind = OutputKind.JSON if row_format is RowFormat.JSON else OutputKind.TEXT
    if output is not None:
        if str(output) not in kinds:
            raise typer.BadParameter("--explain requires --output text or --output json")
        kind = kinds[str(output)]
    with use_instance(context) as instance:
        from sleeper.query.sql.service import explain_statement
        from sleeper.query.sql.tables import parse_as_of_options
        from sleeper.reports.queries import list_reads

        explanation = explain_statement(instance, statement, parse_as_of_options(as_of), parameters)
        print_listings([list_reads(explanation)], kind)


def _choose_output(
    row_format: RowFormat | None, output: Path | None
) -> tuple[RowFormat, Path | None]:
    """Returns the format, and the file unless it is the name of a format."""
    if row_format is None and output is not None and str(output) in set(RowFormat):
        return RowFormat(str(output)), None
    return RowFormat.choose(row_format, output), output


def _print_rows(
    result: "QueryResult", row_format: RowFormat, output: Path | None, start: float
) -> None:
    from sleeper.query.rows.output import ROW_OUTPUTS

    with result, open_row_sink(row_format, output) as sink:
        rows = ROW_OUTPUTS[row_format](result.schema, result, sink)
    note(f"{pluralize(rows, 'row')}, {(time.monotonic() - start) * 1000:,.0f} ms")


@queries.command("send")
@instance_command
def send(
    instance: "Instance",
    file: Annotated[str, typer.Argument(metavar="FILE", help="Message file, or - for stdin.")],
) -> None:
    """Queue a query and print its id.

    The message is JSON with the members type, tableName and regions; other members are
    optional. Workers of `sleeper run` or of the AWS instance run the query and write the rows
    to the destination in the message.

    \b
    Examples:
      sleeper queries send query.json
      jq '.queryId = "again"' query.json | sleeper queries send -
    """
    from sleeper.admin.tables import read_text
    from sleeper.query_service.service import send_query

    body = sys.stdin.read() if file == "-" else read_text(Path(file), "query file")
    typer.echo(send_query(instance, body))


@queries.command("show")
@instance_command
def show(
    instance: "Instance",
    query_id: Annotated[str, typer.Argument(metavar="QUERY_ID")],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Show the status of a query, of its subqueries, and the location of its rows.

    \b
    Examples:
      sleeper queries show all-of-it
      sleeper queries show all-of-it --output json
    """
    from sleeper.query_service.service import show_query

    report, location = show_query(instance, query_id)
    print_listings([report.listing()], output)
    if location is not None:
        note(f"results: {location}")
