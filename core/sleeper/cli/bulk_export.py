"""`sleeper bulk-export`: a table becomes Parquet files."""

import time
from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.printing import note
from sleeper.cli.table import TableName
from sleeper.reports.listing import counted


def bulk_export(
    context: typer.Context,
    name: TableName,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Below which to write: a folder, or s3://bucket/prefix. Default: where the "
            "instance's exports go.",
        ),
    ] = None,
    export_id: Annotated[
        str | None,
        typer.Option(
            "--export-id",
            metavar="ID",
            help="An export that comes again under the same id goes on where it was.",
        ),
    ] = None,
) -> None:
    """Write a whole table as Parquet, one sorted file a leaf, and print the folder.

    All files are of one version; filters, aggregations and iterators are applied. The folder
    is DIR/TABLE_ID/EXPORT_ID; all are there when it holds _SUCCESS.

    \b
    Examples:
      sleeper bulk-export flights --output /data/exports
      sleeper bulk-export flights --output s3://my-bucket/exports
      sleeper bulk-export flights --export-id flights-2013
    """
    with opened(context) as instance:
        instance.table(name)  # before the engine is loaded, which takes a second
        from sleeper.wiring.bulk_exporting import export_table

        begun = time.monotonic()
        result = export_table(instance, name, output, export_id)
    if result.done_before:
        note(f"export {result.export_id} was done before: nothing was changed")
    else:
        seconds = time.monotonic() - begun
        note(
            f"{counted(result.rows, 'row')} in {counted(result.files, 'file')} of {name} at "
            f"version {result.version:,}, {seconds:.1f} s (export {result.export_id})"
        )
    typer.echo(result.location)
