"""`sleeper table`: make tables, look at them, change them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from sleeper.cli.completion import table_names, table_properties
from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings, warn
from sleeper.cli.progress import rows_progress
from sleeper.cli.settings import parse_settings
from sleeper.reports.output import ReportKind

commands = typer.Typer(help="Make tables, look at them, change them.", no_args_is_help=True)

TableName = Annotated[
    str, typer.Argument(metavar="NAME", help="The table's name.", autocompletion=table_names)
]


@commands.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table's name.")],
    schema: Annotated[
        Path, typer.Option("--schema", metavar="FILE", help="The fields, as schema JSON.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PROPERTY=VALUE",
            help="Set a property. Repeatable.",
            autocompletion=table_properties,
        ),
    ] = None,
    split_points: Annotated[
        Path | None,
        typer.Option(
            "--split-points",
            metavar="FILE",
            help="Where to split the table from the start: one value of the first row key "
            "field a line, ascending. Byte arrays are base64, and strings too if "
            "sleeper.table.splits.base64.encoded=true.",
        ),
    ] = None,
) -> None:
    """Make a table.

    \b
    Examples:
      sleeper table create flights --schema flights.schema.json
      sleeper table create flights --schema flights.schema.json --split-points splits.txt \\
          --set sleeper.table.partition.splitting.threshold=50000
    """
    values = parse_settings(settings or [])
    with opened(context) as instance:
        from sleeper.admin.tables import create_table_from_files

        properties = create_table_from_files(instance, name, schema, values, split_points)
        note(f"created table {name}")
        warn(properties.warnings())


@commands.command("list")
def list_tables(context: typer.Context, output: OutputOption = OutputKind.TEXT) -> None:
    """List the tables.

    \b
    Examples:
      sleeper table list
      sleeper table list --output json | jq -r .table
    """
    with opened(context) as instance:
        from sleeper.reports.service import report

        print_listings(report(instance, ReportKind.TABLES), output)


@commands.command("show")
def show(context: typer.Context, name: TableName, output: OutputOption = OutputKind.TEXT) -> None:
    """Show what a table holds, its fields, and the properties that are not at their defaults.

    \b
    Example:
      sleeper table show flights
    """
    with opened(context) as instance:
        from sleeper.reports.service import report_table

        print_listings(report_table(instance, name).listings(), output)


@commands.command("check")
def check(context: typer.Context, name: TableName, output: OutputOption = OutputKind.TEXT) -> None:
    """Read all data files of a table and verify them against its state.

    Whether each file is there; its checksums, its rows, their order, bounds and
    partitions; and its sidecars. Exit status 1 if anything is wrong.

    \b
    Example:
      sleeper table check flights
    """
    with opened(context) as instance:
        instance.table(name)  # before Arrow is loaded, which takes a while
        from sleeper.reports.check import check_table

        with rows_progress(f"check {name}") as on_rows:
            report = check_table(instance, name, on_rows)
        print_listings([report.listing()], output)
        if report.findings:
            raise typer.Exit(1)


@commands.command("rename")
def rename_table(
    context: typer.Context,
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="Its name until now.", autocompletion=table_names)
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its name from now on.")],
) -> None:
    """Give a table a new name.

    \b
    Example:
      sleeper table rename flights flights-2013
    """
    with opened(context) as instance:
        from sleeper.admin.tables import rename

        rename(instance, old, new)
        note(f"renamed table {old} to {new}")


@commands.command("delete")
def delete(
    context: typer.Context,
    name: TableName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a table: it is gone at once, its files when they are collected.

    Asks first on a terminal. There is no way back.

    \b
    Example:
      sleeper table delete flights --yes
    """
    with opened(context) as instance:
        from sleeper.admin.tables import delete_table

        instance.table(name)
        if not yes and sys.stdin.isatty():
            typer.confirm(f"delete table {name} and all its rows?", abort=True, err=True)
        delete_table(instance, name)
        note(f"deleting table {name}")


@commands.command("online")
def online(context: typer.Context, name: TableName) -> None:
    """Put a table online: it is split and compacted again.

    \b
    Example:
      sleeper table online flights
    """
    _set_online(context, name, True)


@commands.command("offline")
def offline(context: typer.Context, name: TableName) -> None:
    """Put a table offline: it is not split or compacted; ingest and queries go on.

    \b
    Example:
      sleeper table offline flights
    """
    _set_online(context, name, False)


def _set_online(context: typer.Context, name: str, is_online: bool) -> None:
    with opened(context) as instance:
        from sleeper.admin.tables import set_online

        set_online(instance, name, is_online)
        note(f"table {name} is now {'online' if is_online else 'offline'}")


@commands.command("accept-time")
def accept_time(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The table's name.", autocompletion=table_names),
    ] = None,
    all_tables: Annotated[bool, typer.Option("--all", help="Of all tables.")] = False,
) -> None:
    """Accept this machine's clock for a table that had no commit for more than 30 days.

    A commit that would move the time of a table's log so far is refused, because a wrong clock
    forgets the ids of jobs and ages rows off, and the log's time never goes back. Look at the
    clock first.

    \b
    Examples:
      date; sleeper table accept-time flights
      sleeper table accept-time --all
    """
    if (name is None) != all_tables:
        raise typer.BadParameter("give a table's name, or --all")
    with opened(context) as instance:
        from sleeper.admin.tables import accept_time as accept
        from sleeper.clock import iso_time

        for each in [name] if name is not None else [t.name for t in instance.tables.index.list()]:
            before_ms, after_ms = accept(instance, each)
            note(f"table {each}: log time moved from {iso_time(before_ms)} to {iso_time(after_ms)}")


@commands.command("get")
def get(
    context: typer.Context,
    name: TableName,
    property_name: Annotated[
        str,
        typer.Argument(
            metavar="PROPERTY", help="Of the page Properties.", autocompletion=table_properties
        ),
    ],
) -> None:
    """Print a property's value as it is in force.

    \b
    Example:
      sleeper table get flights sleeper.table.gc.delay.minutes
    """
    with opened(context) as instance:
        from sleeper.admin.tables import get_table_property

        typer.echo(get_table_property(instance, name, property_name))


@commands.command("set")
def set_properties(
    context: typer.Context,
    name: TableName,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="PROPERTY=VALUE",
            help="As many as you like.",
            autocompletion=table_properties,
        ),
    ],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Set properties of a table, and print what changed. An empty value unsets one.

    \b
    Examples:
      sleeper table set flights sleeper.table.gc.delay.minutes=30
      sleeper table set flights sleeper.table.gc.delay.minutes=
    """
    changes = parse_settings(settings)
    with opened(context) as instance:
        from sleeper.admin.settings import change_table_properties

        report = change_table_properties(instance, name, changes)
        print_listings([report.listing()], output)
        warn(report.warnings)


@commands.command("properties")
def properties(
    context: typer.Context, name: TableName, output: OutputOption = OutputKind.TEXT
) -> None:
    """List all properties of a table as they are in force.

    \b
    Example:
      sleeper table properties flights
    """
    with opened(context) as instance:
        from sleeper.admin.settings import report_table_properties

        print_listings([report_table_properties(instance, name).listing()], output)
