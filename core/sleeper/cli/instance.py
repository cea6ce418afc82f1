"""`sleeper instance`, `sleeper pause` and `sleeper resume`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import (
    OutputKind,
    OutputOption,
    complete_instance_property,
    parse_settings,
    use_instance,
)
from sleeper.cli.output import listing_command, note, print_listings, warn
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
def get_property(
    context: typer.Context,
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
    with use_instance(context) as instance:
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


def pause(context: typer.Context) -> None:
    """Pause the background schedules of an AWS instance.

    Prints the names of the schedules. Queued jobs still run. A deployment resumes the schedules.

    \b
    Example:
      sleeper --instance aws:my-instance pause
    """
    _switch_schedules(context, on=False)


def resume(context: typer.Context) -> None:
    """Resume the background schedules of an AWS instance.

    \b
    Example:
      sleeper --instance aws:my-instance resume
    """
    _switch_schedules(context, on=True)


def _switch_schedules(context: typer.Context, on: bool) -> None:
    with use_instance(context) as instance:
        if instance.switch_schedules is None:
            raise InvalidRequestError(
                "a local instance has no schedules: start or stop `sleeper run` instead"
            )
        rules = instance.switch_schedules(on)
        for rule in rules:
            typer.echo(rule)
        note(f"{'resumed' if on else 'paused'} {pluralize(len(rules), 'schedule')}")
