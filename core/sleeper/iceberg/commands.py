"""`sleeper iceberg`: tables for engines that read Apache Iceberg."""

from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import OutputKind, OutputOption, TableName
from sleeper.cli.output import instance_command, print_listings

if TYPE_CHECKING:
    from sleeper.instance import Instance

iceberg = typer.Typer(
    help="Publish tables for engines that read Apache Iceberg.", no_args_is_help=True
)


@iceberg.command("publish")
@instance_command
def publish(
    instance: "Instance",
    name: TableName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="LOCATION",
            help="Folder or s3://bucket/prefix of the metadata. Default: the property "
            "sleeper.table.iceberg.location, or a folder of the instance.",
        ),
    ] = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Publish the newest version of a table, and print the address of its metadata.

    Engines that read Apache Iceberg then read the table's data files: no row is copied. The version
    is a snapshot, whose id is the transaction number. It stays readable for
    sleeper.table.iceberg.hold.seconds after it was published. With
    sleeper.table.iceberg.publish.seconds, `sleeper run` publishes after commits.

    \b
    Examples:
      sleeper iceberg publish flights
      sleeper iceberg publish flights --to /data/iceberg/flights
      sleeper iceberg publish flights --to s3://my-bucket/flights --output json
    """
    from sleeper.iceberg.listings import list_published
    from sleeper.iceberg.service import publish_table

    print_listings([list_published(name, publish_table(instance.table(name), to))], output)
