"""`sleeper iceberg`: tables for engines that read Apache Iceberg."""

from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import OutputKind, OutputOption, TableName
from sleeper.cli.output import instance_command, note, print_listings
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from sleeper.instance import Instance

iceberg = typer.Typer(
    help="Publish tables for engines that read Apache Iceberg.", no_args_is_help=True
)


Location = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="LOCATION",
        help="Folder or s3://bucket/prefix of the metadata. Default: the property "
        "sleeper.table.iceberg.location, or a folder of the instance.",
    ),
]


@iceberg.command("publish")
@instance_command
def publish(
    instance: "Instance",
    name: TableName,
    to: Location = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            help="First compact what keeps the table from being published: files of a table of "
            "latest rows or with aggregations, and files without an added field that has a "
            "default.",
        ),
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Publish the newest version of a table, and print the address of its metadata.

    Engines that read Apache Iceberg then read the table's data files: no row is copied. The version
    is a snapshot, whose id is the transaction number. It stays readable for
    sleeper.table.iceberg.hold.seconds after it was published. With
    sleeper.table.iceberg.publish.seconds, `sleeper run` publishes after commits. On AWS, tasks run
    the jobs of --compact: publish again when they have ended.

    \b
    Examples:
      sleeper iceberg publish flights
      sleeper iceberg publish flights --compact
      sleeper iceberg publish flights --to /data/iceberg/flights
      sleeper iceberg publish flights --to s3://my-bucket/flights --output json
    """
    from sleeper.iceberg.listings import list_publication
    from sleeper.iceberg.service import publish_table

    table = instance.table(name)
    if compact:
        from sleeper.iceberg.compacting import compact_to_publish

        note(f"created {pluralize(compact_to_publish(table), 'compaction job')}")
    print_listings([list_publication(name, publish_table(table, to))], output)


@iceberg.command("unpublish")
@instance_command
def unpublish(
    instance: "Instance",
    name: TableName,
    to: Location = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Remove what was published of a table from a location, so that it is empty.

    The table's rows and data files stay. With --to, the table may be a deleted one, by the name
    that it had. A table with sleeper.table.iceberg.publish.seconds is published again.

    \b
    Examples:
      sleeper iceberg unpublish flights
      sleeper iceberg unpublish flights --to /data/iceberg/flights
    """
    from sleeper.iceberg.listings import list_unpublished
    from sleeper.iceberg.unpublish import unpublish_table

    print_listings([list_unpublished(unpublish_table(instance, name, to))], output)


@iceberg.command("status")
@instance_command
def status(instance: "Instance", output: OutputOption = OutputKind.TEXT) -> None:
    """List the published tables, with the version that was published last in each location.

    Behind is the number of later transactions if they changed rows: the next publication has their
    rows, or one after a compaction.

    \b
    Examples:
      sleeper iceberg status
      sleeper iceberg status --output json
    """
    from sleeper.iceberg.listings import list_published
    from sleeper.iceberg.status import find_publications

    print_listings([list_published(find_publications(instance))], output)
