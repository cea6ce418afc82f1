"""`sleeper split-points`: split points of tables that are to be created."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import use_instance
from sleeper.cli.output import RowFormat, note, open_row_sink
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sleeper.schema.model import Schema
    from sleeper.storage.bucket_folder import SourceFile

commands = typer.Typer(help="Estimate split points of tables from files.", no_args_is_help=True)


@commands.callback()
def split_points() -> None:
    """Estimate split points of tables from files."""


@commands.command("estimate")
def estimate(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[TABLE] FILE...",
            help="Parquet, CSV or JSON lines files or directories of them. Without --schema, "
            "the first argument is the table that has their schema.",
        ),
    ],
    leaves: Annotated[
        int,
        typer.Option(
            "--leaves", min=2, max=100_000, metavar="N", help="Number of leaf partitions to make."
        ),
    ],
    schema_file: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="FILE", help="Schema of a table that does not exist, as JSON."
        ),
    ] = None,
    is_base64: Annotated[
        bool,
        typer.Option(
            "--base64",
            help="Print strings as base64, for a table with "
            "sleeper.table.splits.base64.encoded=true. Byte arrays always are.",
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")
    ] = None,
) -> None:
    """Print split points that divide the rows of files into leaves of equal size.

    Prints one value of the first row key field per line, as `sleeper table create --split-points`
    reads them. Samples the keys of Parquet files, and reads other files whole. There are fewer
    points than asked for if single values have many rows.

    \b
    Examples:
      sleeper split-points estimate --schema flights.schema.json --leaves 16 2013-*.parquet \\
          --output splits.txt
      sleeper split-points estimate flights 2013-01.parquet 2013-02.parquet --leaves 8
    """
    if schema_file is not None:
        from sleeper.admin.tables import read_schema_file

        schema = read_schema_file(schema_file)
        sources: Sequence[SourceFile] = [Path(file) for file in files]
    else:
        table, *files = files
        if not files:
            raise typer.BadParameter("no files (expected TABLE FILE..., or --schema FILE)")
        schema, sources = _open_sources(context, table, files)
    from sleeper.bulk_import.estimate import estimate_split_points, format_split_points

    points = estimate_split_points(sources, schema, leaves)
    text = format_split_points(points, schema, is_base64)
    if output is None:
        sys.stdout.write(text)
    else:
        with open_row_sink(RowFormat.CSV, output) as sink:
            sink.write(text.encode())
    note(f"{pluralize(len(points), 'split point')} of {schema.row_keys[0].name}")


def _open_sources(
    context: typer.Context, table: str, files: "Sequence[str]"
) -> "tuple[Schema, list[SourceFile]]":
    with use_instance(context) as instance:
        opened = instance.table(table)
        from sleeper.ingest.service import find_source_schema

        sources = instance.storage.sources
        return find_source_schema(opened), [sources.open(sources.job_name(f)) for f in files]
