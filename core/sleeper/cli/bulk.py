"""`sleeper bulk-import` and `sleeper bulk-export`."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import (
    SparkConf,
    SparkMaster,
    TableName,
    needs_spark,
    spark_arguments,
    use_instance,
)
from sleeper.cli.ingest import JobId, suggest_retry, summarize_load
from sleeper.cli.output import note, show_stages
from sleeper.jobs.ingest_job import new_job_id
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.reports.output import pluralize

# One attempt for each task, because an invalid row fails every one.
_MASTER = "local[*]"

if TYPE_CHECKING:
    from sleeper.bulk_export.service import BulkExportResult, WriteLeaves
    from sleeper.spark.settings import SparkSettings


def bulk_export(
    context: typer.Context,
    name: TableName,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Destination: a folder, or s3://bucket/prefix. Default: the export location of "
            "the instance.",
        ),
    ] = None,
    export_id: Annotated[
        str | None,
        typer.Option(
            "--export-id",
            metavar="ID",
            help="Id of the export. A repeated export with the same id resumes.",
        ),
    ] = None,
    filters: Annotated[
        str,
        typer.Option(
            "--filters",
            metavar="FILTER,...",
            help="Omit rows: ageOff(FIELD,MILLIS) omits those that were older when the exported "
            "version was committed, jsonContains(FIELD,JSON) those whose document does not contain "
            "the value.",
        ),
    ] = "",
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Export a table as Parquet files and print their folder.

    All files are of one version of the table, one sorted file per leaf, after filters,
    aggregations and iterators. The folder is DIR/TABLE_ID/EXPORT_ID; it is complete when it
    contains _SUCCESS. This process writes the files, or Spark if --master or
    sleeper.spark.master names one.

    \b
    Examples:
      sleeper bulk-export flights --output /data/exports
      sleeper bulk-export flights --output s3://my-bucket/exports
      sleeper bulk-export flights --export-id flights-2013
      sleeper bulk-export flights --filters 'ageOff(departed,86400000)'
      sleeper bulk-export flights --output s3://my-bucket/exports --master spark://10.0.0.1:7077
    """
    with use_instance(context) as instance:
        instance.table(name)  # fails before the engine takes a second to load
        from sleeper.bulk_export.service import export_table, write_in_threads
        from sleeper.spark.settings import choose_cluster

        spark = choose_cluster(instance.properties(), master, conf or ())
        write_leaves = write_in_threads if spark is None else _leaves_on(spark)
        start = time.monotonic()
        with interrupted_by_sigterm():
            result = export_table(instance, name, output, export_id, filters, write_leaves)
    note(_summarize_export(result, name, time.monotonic() - start))
    typer.echo(result.location)


def _leaves_on(spark: "SparkSettings") -> "WriteLeaves":
    with needs_spark("sleeper bulk-export --master"):
        from sleeper.spark.bulk_export import leaves_on
    return leaves_on(spark)


def _summarize_export(result: "BulkExportResult", table: str, seconds: float) -> str:
    if result.done_before:
        return f"export {result.export_id} is already complete: nothing changed"
    return (
        f"{pluralize(result.rows, 'row')} in {pluralize(result.files, 'file')} of {table} at "
        f"version {result.version:,}, {seconds:.1f} s (export {result.export_id})"
    )


def bulk_import(
    context: typer.Context,
    name: TableName,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Parquet, CSV or JSON lines files, directories of them, or s3://bucket/key if "
            "the instance can read the bucket.",
        ),
    ],
    job_id: JobId = None,
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Add many or large files to a table with Spark.

    All rows are added in one commit. Splits the table first if it has fewer leaves than its
    bulk.import.min.leaf.partitions. Requires `pip install 'sleeper-store[spark]'` and Java 17.

    \b
    Examples:
      sleeper bulk-import flights /data/flights
      sleeper bulk-import flights /data/2013 --job-id year-2013 --master 'local[8]'
      sleeper bulk-import flights /data/2013 --master spark://10.0.0.1:7077 --conf spark.cores.max=8
    """
    with use_instance(context) as instance:
        instance.table(name)  # fails before Spark takes seconds to load
        with needs_spark("sleeper bulk-import"):
            from sleeper.spark.bulk_import_job import import_on
            from sleeper.spark.settings import choose_settings
        job_id = job_id or new_job_id()
        arguments = ["bulk-import", name, *files, *spark_arguments(master, conf)]
        spark = choose_settings(instance.properties(), master, conf or (), _MASTER)
        start = time.monotonic()
        with (
            suggest_retry(context, arguments, job_id),
            interrupted_by_sigterm(),
            show_stages(f"bulk import into {name}") as on_stage,
        ):
            result = import_on(spark, instance, name, files, job_id, on_stage)
    note(summarize_load(result, name, time.monotonic() - start))
