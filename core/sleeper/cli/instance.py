"""Commands on a whole instance: `instance`, `backup`, `pause` and `resume`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import (
    OutputKind,
    OutputOption,
    complete_instance_property,
    complete_table,
    parse_settings,
    use_instance,
)
from sleeper.cli.output import (
    instance_command,
    listing_command,
    note,
    print_listings,
    show_bytes,
    warn,
)
from sleeper.errors import InvalidRequestError
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

commands = typer.Typer(help="Create and configure instances.", no_args_is_help=True)


@commands.command("create")
def create(
    context: typer.Context,
    instance_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Id of the instance. Default: the folder's name."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PROPERTY=VALUE",
            help="Set a property. Repeatable.",
            autocompletion=complete_instance_property,
        ),
    ] = None,
) -> None:
    """Create an instance in the folder that --instance names.

    \b
    Examples:
      sleeper --instance ~/flights instance create
      sleeper --instance ~/flights instance create --set sleeper.local.workers=2
    """
    values = parse_settings(settings or [])
    from sleeper.opening import create_instance

    instance_id = create_instance(context.obj, instance_id, values)
    with use_instance(context) as instance:
        note(f"created instance {instance_id} in {instance.where}")
        warn(instance.properties().warnings())


@commands.command("show")
@listing_command
def show(instance: "Instance") -> "Iterable[Listing]":
    """Show the location of the instance and its properties that are set.

    \b
    Examples:
      sleeper instance show
      sleeper --instance aws:flights instance show --output json
    """
    from sleeper.admin.properties import report_instance_properties

    return [report_instance_properties(instance).only_set().listing()]


@commands.command("properties")
@listing_command
def properties(instance: "Instance") -> "Iterable[Listing]":
    """List all properties of the instance with their effective values.

    \b
    Example:
      sleeper instance properties | grep memory
    """
    from sleeper.admin.properties import report_instance_properties

    return [report_instance_properties(instance).listing()]


@commands.command("get")
@instance_command
def get_property(
    instance: "Instance",
    name: Annotated[
        str,
        typer.Argument(
            metavar="PROPERTY",
            help="Name of the property.",
            autocompletion=complete_instance_property,
        ),
    ],
) -> None:
    """Print the effective value of a property of the instance.

    \b
    Example:
      sleeper instance get sleeper.ingest.job.queue.url
    """
    from sleeper.admin.properties import get_instance_property

    typer.echo(get_instance_property(instance, name))


@commands.command("set")
def set_properties(
    context: typer.Context,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="PROPERTY=VALUE",
            help="Properties to set.",
            autocompletion=complete_instance_property,
        ),
    ],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Set properties of the instance and print the changes. An empty value unsets a property.

    \b
    Examples:
      sleeper instance set sleeper.local.workers=2
      sleeper instance set sleeper.default.table.gc.delay.minutes=
    """
    changes = parse_settings(settings)
    with use_instance(context) as instance:
        from sleeper.admin.properties import change_instance_properties

        report = change_instance_properties(instance, changes)
        print_listings([report.listing()], output)
        warn(report.warnings)


@commands.command("restore")
def restore(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="Folder or s3://bucket/prefix of the backups.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="BACKUP", help="Id of a backup, or its beginning. Default: the newest."
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="Only this table. Repeatable."),
    ] = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Restore tables from a backup into a new folder, or into an instance without these tables.

    A folder that is no instance becomes one, with the id and the properties of the backup. All
    objects are verified before the tables become visible, and all rows are read. Repeat the
    command after an interruption. The exit status is 1 if a file has faults.

    \b
    Examples:
      sleeper --instance ~/flights instance restore /backups/flights
      sleeper --instance aws:flights instance restore s3://backups/flights --at 20260131T12
    """
    from sleeper.api import restore_instance
    from sleeper.backup.report import describe_faults, describe_restore

    with show_bytes("restore") as on_bytes:
        result = restore_instance(source, context.obj, at, tables or (), on_bytes)
    print_listings([describe_restore(result), *describe_faults(result)], output)
    for name in result.earlier:
        note(f"table {name} was restored before")
    if any(table.is_stale for table in result.tables):
        note("the last commit is more than 30 days old: run `sleeper table accept-time --all`")
    if any(table.faults for table in result.tables):
        raise typer.Exit(1)


@instance_command
def backup(
    instance: "Instance",
    destination: Annotated[
        str, typer.Argument(metavar="DEST", help="Folder or s3://bucket/prefix of the backups.")
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Only this table. Repeatable.",
            autocompletion=complete_table,
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, metavar="N", help="Delete all but the N newest backups."),
    ] = None,
    is_list: Annotated[
        bool, typer.Option("--list", help="List the backups in DEST, and make none.")
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Back up the tables of an instance in use, each at its newest version.

    Copies only the data files that DEST lacks. Includes properties and user code. A backup that
    was interrupted can be repeated.

    \b
    Examples:
      sleeper backup /backups/flights
      sleeper backup s3://backups/flights --table flights --keep 7
      sleeper backup /backups/flights --list
    """
    from sleeper.backup.report import describe_backup, list_backups

    if is_list:
        if tables or keep is not None:
            raise InvalidRequestError("--list makes no backup (expected no --table or --keep)")
        print_listings([list_backups(destination, instance)], output)
        return
    from sleeper.backup.run import back_up

    with show_bytes("backup") as on_bytes:
        result = back_up(instance, destination, tables or (), keep, on_bytes)
    print_listings([describe_backup(result)], output)
    if result.dropped:
        note(f"deleted {pluralize(result.dropped, 'old backup')}")


@instance_command
def pause(instance: "Instance") -> None:
    """Pause the background schedules of an AWS instance.

    Prints the names of the schedules. Queued jobs still run. An alarm on missed schedules sends
    nothing meanwhile. A deployment resumes only schedules that it creates or changes.

    \b
    Example:
      sleeper --instance aws:my-instance pause
    """
    _switch_schedules(instance, on=False)


@instance_command
def resume(instance: "Instance") -> None:
    """Resume the background schedules of an AWS instance.

    \b
    Example:
      sleeper --instance aws:my-instance resume
    """
    _switch_schedules(instance, on=True)


def _switch_schedules(instance: "Instance", on: bool) -> None:
    if instance.switch_schedules is None:
        raise InvalidRequestError(
            "a local instance has no schedules: start or stop `sleeper run` instead"
        )
    rules = instance.switch_schedules(on)
    for rule in rules:
        typer.echo(rule)
    note(f"{'resumed' if on else 'paused'} {pluralize(len(rules), 'schedule')}")
