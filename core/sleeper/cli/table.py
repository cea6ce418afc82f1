"""`sleeper table`: create, inspect, change and delete tables."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli import fields, new_table, table_deletion, versions
from sleeper.cli.arguments import (
    LIMIT_MAX,
    OutputKind,
    OutputOption,
    TableName,
    complete_table,
    complete_table_property,
    parse_settings,
    use_instance,
)
from sleeper.cli.new_table import format_schema
from sleeper.cli.output import (
    instance_command,
    listing_command,
    note,
    print_listings,
    show_rows,
    warn,
)
from sleeper.reports.output import ReportKind

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

commands = typer.Typer(help="Create, inspect, change and delete tables.", no_args_is_help=True)
commands.command("create")(new_table.create)
commands.command("delete")(table_deletion.delete)
commands.command("undelete")(table_deletion.undelete)
commands.command("clone")(versions.clone)
commands.command("restore")(versions.restore)
commands.command("reinitialise")(versions.reinitialise)
commands.command("add-field")(fields.add_field)
commands.command("drop-field")(fields.drop_field)
commands.command("rename-field")(fields.rename_field)
commands.command("widen-field")(fields.widen_field)
commands.command("convert-field")(fields.convert_field)
commands.command("order-fields")(fields.order_fields)


@commands.command("list")
@listing_command
def list_tables(
    instance: "Instance",
    deleted: Annotated[
        bool,
        typer.Option("--deleted", help="List the deleted tables that can be undeleted instead."),
    ] = False,
) -> "Iterable[Listing]":
    """List the tables.

    \b
    Examples:
      sleeper table list
      sleeper table list --output json | jq -r .name
      sleeper table list --deleted
    """
    from sleeper.reports.service import report, report_deleted

    if deleted:
        return [report_deleted(instance)]
    return report(instance, ReportKind.TABLES)


@commands.command("show")
@instance_command
def show(
    instance: "Instance",
    name: TableName,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the schema as JSON, for `sleeper table create --schema`."
        ),
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Show a table's contents, its fields, and its properties that are set.

    \b
    Examples:
      sleeper table show flights
      sleeper table show flights --schema > flights.schema.json
    """
    if schema:
        with instance.table(name).state.reading() as state:
            typer.echo(format_schema(state.schema))
        return
    from sleeper.reports.service import report_table

    print_listings(report_table(instance, name).listings(), output)


@commands.command("history")
@instance_command
def print_history(
    instance: "Instance",
    name: TableName,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=0, max=LIMIT_MAX, metavar="N", help="Maximum number of transactions."
        ),
    ] = 50,
    shows_all: Annotated[
        bool, typer.Option("--all", help="Show compactions, splits, collections and followers too.")
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Print what each transaction of a table did, newest first.

    The transactions of its upkeep are hidden: compactions, splits, collections, and followers that
    come and go.

    Files, rows and bytes are those that the transaction wrote, assigned or removed. The state keeps
    the transactions from the oldest readable version on, and at least the newest 1,000.

    \b
    Examples:
      sleeper table history flights
      sleeper table history flights --all --limit 1000 --output json
    """
    from sleeper.reports.history import describe_history

    with instance.table(name).state.reading() as state:
        history = state.history.newest(limit, shows_all)
    print_listings([describe_history(name, history)], output)


@commands.command("check")
@instance_command
def check(instance: "Instance", name: TableName, output: OutputOption = OutputKind.TEXT) -> None:
    """Check all data files of a table.

    Verifies that each file exists, its checksums, its rows with their values, order, bounds
    and partitions, and its sidecars. The exit status is 1 if a file has faults.

    \b
    Example:
      sleeper table check flights
    """
    instance.table(name)  # fails before Arrow takes a second to load
    from sleeper.reports.check import check_table

    with show_rows(f"check {name}") as on_rows:
        report = check_table(instance, name, on_rows)
    print_listings([report.listing()], output)
    if report.findings:
        raise typer.Exit(1)


@commands.command("rename")
@instance_command
def rename_table(
    instance: "Instance",
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="Current name.", autocompletion=complete_table)
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="New name.")],
) -> None:
    """Rename a table.

    \b
    Example:
      sleeper table rename flights flights-2013
    """
    from sleeper.admin.tables import rename

    rename(instance, old, new)
    note(f"renamed table {old} to {new}")


@commands.command("online")
@instance_command
def online(instance: "Instance", name: TableName) -> None:
    """Put a table online, which resumes its splitting and compaction.

    \b
    Example:
      sleeper table online flights
    """
    _set_online(instance, name, True)


@commands.command("offline")
@instance_command
def offline(instance: "Instance", name: TableName) -> None:
    """Put a table offline, which stops its splitting and compaction.

    Ingest and queries continue.

    \b
    Example:
      sleeper table offline flights
    """
    _set_online(instance, name, False)


def _set_online(instance: "Instance", name: str, is_online: bool) -> None:
    from sleeper.admin.tables import set_online

    set_online(instance, name, is_online)
    note(f"table {name} is now {'online' if is_online else 'offline'}")


@commands.command("accept-time")
def accept_time(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the table.", autocompletion=complete_table),
    ] = None,
    all_tables: Annotated[bool, typer.Option("--all", help="All tables.")] = False,
) -> None:
    """Accept this machine's clock for a table without a commit in the last 30 days.

    Such a table refuses commits, because a wrong clock would expire job ids and age rows off,
    and the time of a log cannot decrease. Check the clock first.

    \b
    Examples:
      date; sleeper table accept-time flights
      sleeper table accept-time --all
    """
    if (name is None) != all_tables:
        raise typer.BadParameter("expected the name of a table, or --all")
    with use_instance(context) as instance:
        from sleeper.admin.tables import accept_time as accept
        from sleeper.clock import iso_time

        for each in [name] if name is not None else [t.name for t in instance.tables.index.list()]:
            before_ms, after_ms = accept(instance, each)
            note(f"table {each}: log time moved from {iso_time(before_ms)} to {iso_time(after_ms)}")


@commands.command("get")
@instance_command
def get(
    instance: "Instance",
    name: TableName,
    property_name: Annotated[
        str,
        typer.Argument(
            metavar="PROPERTY", help="Name of the property.", autocompletion=complete_table_property
        ),
    ],
) -> None:
    """Print the effective value of a property of a table.

    \b
    Example:
      sleeper table get flights sleeper.table.gc.delay.minutes
    """
    from sleeper.admin.properties import get_table_property

    typer.echo(get_table_property(instance, name, property_name))


@commands.command("set")
def set_properties(
    context: typer.Context,
    name: TableName,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="PROPERTY=VALUE",
            help="Properties to set.",
            autocompletion=complete_table_property,
        ),
    ],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Set properties of a table and print the changes. An empty value unsets a property.

    \b
    Examples:
      sleeper table set flights sleeper.table.gc.delay.minutes=30
      sleeper table set flights sleeper.table.gc.delay.minutes=
    """
    changes = parse_settings(settings)
    with use_instance(context) as instance:
        from sleeper.admin.properties import change_table_properties

        report = change_table_properties(instance, name, changes)
        print_listings([report.listing()], output)
        warn(report.warnings)


@commands.command("properties")
@listing_command
def properties(instance: "Instance", name: TableName) -> "Iterable[Listing]":
    """List all properties of a table with their effective values.

    \b
    Example:
      sleeper table properties flights
    """
    from sleeper.admin.properties import report_table_properties

    return [report_table_properties(instance, name).listing()]
