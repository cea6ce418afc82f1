"""`sleeper instance`: make an instance, look at it, set its properties."""

from typing import Annotated

import typer

from sleeper.cli.completion import instance_properties
from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings, warn
from sleeper.cli.settings import parse_settings
from sleeper.errors import InvalidRequestError
from sleeper.reports.output import pluralize


def pause(context: typer.Context) -> None:
    """Stop what starts background work of an AWS instance, and print what that is.

    Jobs that are on queues already are still done. A deployment starts all of it again.

    \b
    Example:
      sleeper --instance aws:my-instance pause
    """
    _switch(context, on=False)


def resume(context: typer.Context) -> None:
    """Start what `sleeper pause` stopped, and print what that is.

    \b
    Example:
      sleeper --instance aws:my-instance resume
    """
    _switch(context, on=True)


def _switch(context: typer.Context, on: bool) -> None:
    with opened(context) as instance:
        if instance.switch_schedules is None:
            raise InvalidRequestError(
                "a local instance has no schedules: start or stop `sleeper run` instead"
            )
        rules = instance.switch_schedules(on)
        for rule in rules:
            typer.echo(rule)
        note(f"{'resumed' if on else 'paused'} {pluralize(len(rules), 'schedule')}")


commands = typer.Typer(help="Make an instance and set its properties.", no_args_is_help=True)


@commands.command("create")
def create(
    context: typer.Context,
    instance_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Its id. Default: made from the folder's name."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PROPERTY=VALUE",
            help="Set a property. Repeatable.",
            autocompletion=instance_properties,
        ),
    ] = None,
) -> None:
    """Make a new instance in the folder that --instance names.

    \b
    Examples:
      sleeper --instance ~/flights instance create
      sleeper --instance ~/flights instance create --set sleeper.local.workers=2
    """
    values = parse_settings(settings or [])
    from sleeper.opening import create_instance

    made = create_instance(context.obj, instance_id, values)
    with opened(context) as instance:
        note(f"created instance {made} in {instance.where}")
        warn(instance.properties().warnings())


@commands.command("show")
def show(context: typer.Context, output: OutputOption = OutputKind.TEXT) -> None:
    """Show where the instance is, and the properties that are not at their defaults.

    \b
    Examples:
      sleeper instance show
      sleeper --instance aws:flights instance show --output json
    """
    with opened(context) as instance:
        from sleeper.admin.settings import report_instance_properties

        print_listings([report_instance_properties(instance).only_set().listing()], output)


@commands.command("properties")
def properties(context: typer.Context, output: OutputOption = OutputKind.TEXT) -> None:
    """List all properties of the instance as they are in force.

    \b
    Example:
      sleeper instance properties | grep memory
    """
    with opened(context) as instance:
        from sleeper.admin.settings import report_instance_properties

        print_listings([report_instance_properties(instance).listing()], output)


@commands.command("get")
def get_property(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="PROPERTY", help="Of the page Properties.", autocompletion=instance_properties
        ),
    ],
) -> None:
    """Print the value of a property of the instance, as it is in force.

    \b
    Example:
      sleeper instance get sleeper.ingest.job.queue.url
    """
    with opened(context) as instance:
        from sleeper.admin.settings import get_instance_property

        typer.echo(get_instance_property(instance, name))


@commands.command("set")
def set_properties(
    context: typer.Context,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="PROPERTY=VALUE",
            help="As many as you like.",
            autocompletion=instance_properties,
        ),
    ],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Set properties of the instance, and print what changed. An empty value unsets one.

    \b
    Examples:
      sleeper instance set sleeper.local.workers=2
      sleeper instance set sleeper.default.table.gc.delay.minutes=
    """
    changes = parse_settings(settings)
    with opened(context) as instance:
        from sleeper.admin.settings import change_instance_properties

        report = change_instance_properties(instance, changes)
        print_listings([report.listing()], output)
        warn(report.warnings)
