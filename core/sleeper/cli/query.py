"""`sleeper query` and `sleeper sql`."""

import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Self

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, note, print_listings
from sleeper.cli.table import TableName
from sleeper.errors import UnavailableError, describe_error
from sleeper.reports.output import pluralize
from sleeper.storage.disk import sync_folder

if TYPE_CHECKING:
    from sleeper.query.result import QueryResult


class RowFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"

    @classmethod
    def of(cls, chosen: Self | None, file: Path | None) -> Self:
        """The one chosen, or what the file's name says, or a table."""
        if chosen is not None:
            return chosen
        ending = file.suffix.lower() if file is not None else ""
        return cls({".csv": "csv", ".parquet": "parquet", **_JSON_ENDINGS}.get(ending, "table"))


_JSON_ENDINGS = {".json": "json", ".jsonl": "json", ".ndjson": "json"}


@contextmanager
def row_sink(row_format: RowFormat, file: Path | None) -> Iterator[BinaryIO]:
    """What to write to. A file appears under its name when all rows are in it."""
    if file is None:
        if row_format is RowFormat.PARQUET and sys.stdout.isatty():
            raise typer.BadParameter(
                "cannot write Parquet to a terminal: use --output FILE or a pipe"
            )
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif file.exists() and not file.is_file():  # a pipe or a device
        with file.open("wb") as sink:
            yield sink
    else:
        part = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            with _opened(part, file) as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            os.replace(part, file)
            sync_folder(file.parent)
        except OSError as error:
            raise UnavailableError(f"cannot write {file}: {describe_error(error)}") from error
        finally:
            part.unlink(missing_ok=True)


def _opened(part: Path, file: Path) -> BinaryIO:
    try:
        return part.open("wb")
    except OSError as error:
        raise UnavailableError(f"cannot write {file}: {describe_error(error)}") from error


FormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", help="Default: as --output's name ends, or else table."),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rows to this file. The bare name of a format, such as json, is the format "
        "on standard output, as for other commands.",
    ),
]


def query(
    context: typer.Context,
    name: TableName,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="V[,V...]",
            help="Rows with this row key: a value per row key field, quoted as in CSV; "
            "bytes as base64. Repeatable.",
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="MIN:MAX",
            help="Rows whose first row key field is at least MIN and below MAX; either may be "
            "empty; a value with a colon is quoted as in CSV: '\"a:b\":c'. Repeatable.",
        ),
    ] = None,
    regions: Annotated[
        list[str] | None,
        typer.Option(
            "--region", metavar="JSON", help="Rows of a region in several fields. Repeatable."
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Only these, in this order.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, metavar="N", help="At most N rows.")
    ] = None,
    as_of: Annotated[
        int | None,
        typer.Option("--as-of", min=1, metavar="N", help="The table as transaction N left it."),
    ] = None,
    filters: Annotated[
        str,
        typer.Option("--filters", metavar="ageOff(FIELD,MILLIS)", help="Leave out older rows."),
    ] = "",
    aggregations: Annotated[
        str,
        typer.Option(
            "--aggregations",
            metavar="OP(FIELD),...",
            help="Make rows of equal keys one, each value field by sum, min, max, map_sum, "
            "map_min or map_max.",
        ),
    ] = "",
    iterator: Annotated[
        str,
        typer.Option("--iterator", metavar="NAME", help="Pass the rows through this one, last."),
    ] = "",
    iterator_config: Annotated[
        str, typer.Option("--iterator-config", metavar="TEXT", help="What it is told.")
    ] = "",
    row_format: FormatOption = None,
    output: FileOption = None,
) -> None:
    """Print a table's rows by key, range or region; all of them if none is given.

    Keys, ranges and regions may be mixed: a row in any of them is printed, once.

    \b
    Examples:
      sleeper query flights --key N14228 --columns sched_dep,origin,dest
      sleeper query flights --range N10:N11 --limit 20
      sleeper query flights --range :N2 --format csv | head
      sleeper query places --key '"Paris, Texas",7'
      sleeper query flights --as-of 3 --output flights.parquet
      sleeper query flights --region \\
          '{"tailnum":{"min":"N1","max":"N2"},"stringsBase64Encoded":false}'
    """
    with opened(context) as instance:
        instance.table(name)  # before the engine is loaded, which takes a second
        from sleeper.cli.rows_asked import query_asked
        from sleeper.processing.text import iterator_call
        from sleeper.query.service import open_query, read_schema

        begun = time.monotonic()
        asked = query_asked(
            read_schema(instance, name),
            keys or (),
            ranges or (),
            regions or (),
            columns,
            limit,
            as_of,
            filters,
            aggregations,
            iterator_call(iterator, iterator_config),
        )
        _print_rows(open_query(instance, name, asked), row_format, output, begun)


def sql(
    context: typer.Context,
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One SELECT.")],
    as_of: Annotated[
        list[str] | None,
        typer.Option(
            "--as-of",
            metavar="N",
            help="The statement's table as transaction N left it; TABLE=N for each where it "
            "names several. Repeatable.",
        ),
    ] = None,
    row_format: FormatOption = None,
    output: FileOption = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Run it, and print what it read of each table in the place of its rows: "
            "leaves, files, bytes, pages. As JSON with --output json.",
        ),
    ] = False,
) -> None:
    """Print the rows of a SQL query over the tables of the instance.

    \b
    Examples:
      sleeper sql "SELECT origin, count(*) FROM flights GROUP BY origin"
      sleeper sql "SELECT * FROM planes WHERE year < 1960" --output old.parquet
      sleeper sql "SELECT count(*) FROM flights" --as-of 3
      sleeper sql --explain "SELECT * FROM flights WHERE tailnum = 'N14228'"
    """
    if explain:
        _explain(context, statement, as_of or (), row_format, output)
        return
    with opened(context) as instance:
        from sleeper.query.service import open_sql
        from sleeper.query.sql.as_of import parse_as_of_options

        begun = time.monotonic()
        result = open_sql(instance, statement, as_of=parse_as_of_options(as_of or ()))
        _print_rows(result, row_format, output, begun)


def _explain(
    context: typer.Context,
    statement: str,
    as_of: Sequence[str],
    row_format: RowFormat | None,
    output: Path | None,
) -> None:
    kinds = {str(kind): kind for kind in OutputKind}
    kind = OutputKind.JSON if row_format is RowFormat.JSON else OutputKind.TEXT
    if output is not None:
        if str(output) not in kinds:
            raise typer.BadParameter("--explain takes --output text or --output json")
        kind = kinds[str(output)]
    with opened(context) as instance:
        from sleeper.query.service import explain_statement
        from sleeper.query.sql.as_of import parse_as_of_options
        from sleeper.reports.queries import list_reads

        explanation = explain_statement(instance, statement, parse_as_of_options(as_of))
        print_listings([list_reads(explanation)], kind)


def _print_rows(
    result: "QueryResult", row_format: RowFormat | None, output: Path | None, begun: float
) -> None:
    from sleeper.query.rows.output import ROW_OUTPUTS

    if row_format is None and output is not None and str(output) in set(RowFormat):
        row_format, output = RowFormat(str(output)), None
    chosen = RowFormat.of(row_format, output)
    with result, row_sink(chosen, output) as sink:
        rows = ROW_OUTPUTS[chosen](result.schema, result, sink)
    note(f"{pluralize(rows, 'row')}, {(time.monotonic() - begun) * 1000:,.0f} ms")
