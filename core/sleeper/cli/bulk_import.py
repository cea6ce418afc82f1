"""`sleeper bulk-import`: big loads become rows of a table, on Spark."""

import time
from typing import Annotated

import typer

from sleeper import DISTRIBUTION
from sleeper.cli.loaded import JobId, repeatable, summary
from sleeper.cli.opened import opened
from sleeper.cli.output import note
from sleeper.cli.progress import stage_progress
from sleeper.cli.table import TableName
from sleeper.errors import InvalidRequestError
from sleeper.jobs.ingest_job import new_job_id
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.reports.output import pluralize


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
        from sleeper.bulk_export.service import export_table

        begun = time.monotonic()
        result = export_table(instance, name, output, export_id)
    if result.done_before:
        note(f"export {result.export_id} is already complete: nothing changed")
    else:
        seconds = time.monotonic() - begun
        note(
            f"{pluralize(result.rows, 'row')} in {pluralize(result.files, 'file')} of {name} at "
            f"version {result.version:,}, {seconds:.1f} s (export {result.export_id})"
        )
    typer.echo(result.location)


def bulk_import(
    context: typer.Context,
    name: TableName,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Parquet, CSV or JSON lines; a directory stands for all such files below it. "
            "Also s3://bucket/key, where the instance may read the bucket.",
        ),
    ],
    job_id: JobId = None,
    master: Annotated[
        str,
        typer.Option("--master", metavar="MASTER", help="The Spark to run on, started for this."),
    ] = "local[*]",
) -> None:
    """Take many or big files into a table with Spark, in one commit: all of their rows, or none.

    A table of fewer leaves than its bulk.import.min.leaf.partitions is split first. Spark
    comes with `pip install 'sleeper-store[spark]'`, and needs Java 17.

    \b
    Examples:
      sleeper bulk-import flights /data/flights
      sleeper bulk-import flights /data/2013 --job-id year-2013 --master 'local[8]'
    """
    with opened(context) as instance:
        instance.table(name)  # before Spark is loaded, which takes seconds
        try:
            from sleeper.spark.bulk_import_job import import_on
        except ModuleNotFoundError as error:
            raise InvalidRequestError(
                f"sleeper bulk-import needs {error.name}: pip install '{DISTRIBUTION}[spark]'"
            ) from error
        chosen = job_id or new_job_id()
        arguments = ["bulk-import", name, *files, "--master", master]
        begun = time.monotonic()
        progress = stage_progress(f"bulk import into {name}")
        with (
            repeatable(context, arguments, chosen),
            interrupted_by_sigterm(),
            progress as on_stage,
        ):
            result = import_on(master, instance, name, files, chosen, on_stage)
    note(summary(result, name, time.monotonic() - begun))
