"""`sleeper table`: create, inspect, change and delete tables."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli import fields, versions
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
from sleeper.cli.file_options import (
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    FormatOption,
    HeaderOption,
    NestedOption,
    make_options,
)
from sleeper.cli.new_table import format_schema, infer_schema, suggest_ingest
from sleeper.cli.output import (
    instance_command,
    listing_command,
    note,
    print_listings,
    show_rows,
    warn,
)
from sleeper.reports.output import ReportKind
from sleeper.schema.model import Schema
from sleeper.storage.source_options import DEFAULT_OPTIONS

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

commands = typer.Typer(help="Create, inspect, change and delete tables.", no_args_is_help=True)
commands.command("clone")(versions.clone)
commands.command("restore")(versions.restore)
commands.command("reinitialise")(versions.reinitialise)
commands.command("add-field")(fields.add_field)
commands.command("drop-field")(fields.drop_field)
commands.command("rename-field")(fields.rename_field)
commands.command("widen-field")(fields.widen_field)
commands.command("order-fields")(fields.order_fields)


@commands.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the table.")],
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="Schema of the table, as JSON.")
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option(
            "--like",
            metavar="FILE",
            help="Find the schema in Parquet, CSV or JSON lines files: a path, a quoted pattern, a "
            "directory, or s3://bucket/key. It has the columns of all files, nullable if they are "
            "no keys. Repeatable. Requires --key.",
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="A,B", help="Columns of --like that are row keys."),
    ] = None,
    sort_keys: Annotated[
        list[str] | None,
        typer.Option("--sort", metavar="A,B", help="Columns of --like that are sort keys."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="COLUMN=TYPE", help="Type of a column of --like. Repeatable."
        ),
    ] = None,
    file_format: FormatOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    header: HeaderOption = None,
    columns: ColumnsOption = None,
    nested: NestedOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the schema that --like finds, and create nothing."),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PROPERTY=VALUE",
            help="Set a property. Repeatable.",
            autocompletion=complete_table_property,
        ),
    ] = None,
    split_points: Annotated[
        Path | None,
        typer.Option(
            "--split-points",
            metavar="FILE",
            help="Initial split points: one value of the first row key field per line, "
            "ascending. Byte arrays are base64, and so are strings if "
            "sleeper.table.splits.base64.encoded=true.",
        ),
    ] = None,
) -> None:
    """Create a table, from a schema or like files.

    With --like, the schema is printed to standard output.
    sleeper.table.type=snapshot makes a snapshot table, whose rows each ingest replaces.
    sleeper.table.rows=latest makes a table that shows only the newest row of each key.

    \b
    Examples:
      sleeper table create flights --schema flights.schema.json
      sleeper table create taxi --like 'data/*.parquet' --key cab_id --sort pickup_at
      sleeper table create rides --like rides.csv --key city,day --type day=IntType --dry-run
      sleeper table create flights --schema flights.schema.json --split-points splits.txt \\
          --set sleeper.table.partition.splitting.threshold=50000
      sleeper table create customers --schema customers.schema.json \\
          --set sleeper.table.type=snapshot --set sleeper.table.snapshot.ttl=7d \\
          --set sleeper.table.snapshot.min.versions=1
    """
    values = parse_settings(settings or [])
    options = make_options(file_format, delimiter, encoding, header, columns, nested)
    is_of_files = keys or sort_keys or types or dry_run or options != DEFAULT_OPTIONS
    if (schema is None) == (not like) or (is_of_files and not like):
        raise typer.BadParameter("expected --schema, or --like with the options of files")
    with use_instance(context) as instance:
        from sleeper.admin.tables import create_table_from_files

        found: Path | Schema | None = schema
        if like:
            found = infer_schema(instance, like, keys or (), sort_keys or (), types or (), options)
        if dry_run or found is None:
            return
        properties = create_table_from_files(instance, name, found, values, split_points)
        note(f"created table {name}")
        if like:
            suggest_ingest(name, like, options)
        warn(properties.warnings())


@commands.command("list")
@listing_command
def list_tables(
    instance: "Instance",
    deleted: Annotated[
        bool,
        typer.Option("--deleted", help="List the deleted tables that can be brought back instead."),
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
def history(
    instance: "Instance",
    name: TableName,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=0, max=LIMIT_MAX, metavar="N", help="Maximum number of transactions."
        ),
    ] = 50,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Print what each transaction of a table did, newest first.

    Files, rows and bytes are those that the transaction wrote, assigned or removed. The state keeps
    the transactions from the oldest readable version on, and at least the newest 1,000.

    \b
    Examples:
      sleeper table history flights
      sleeper table history flights --limit 1000 --output json
    """
    from sleeper.reports.history import describe_history

    with instance.table(name).state.reading() as state:
        entries, kept = state.history.newest(limit), state.history.count()
    print_listings([describe_history(name, entries, kept)], output)


@commands.command("check")
@instance_command
def check(instance: "Instance", name: TableName, output: OutputOption = OutputKind.TEXT) -> None:
    """Check all data files of a table.

    Verifies that each file exists, its checksums, its rows with their order, bounds and
    partitions, and its sidecars. The exit status is 1 if a file has faults.

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


@commands.command("delete")
@instance_command
def delete(
    instance: "Instance",
    name: TableName,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Do not ask for confirmation. Required without a terminal."
        ),
    ] = False,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="Do not keep the table: the next garbage collection deletes its files. Also for a "
            "table that was deleted before.",
        ),
    ] = False,
) -> None:
    """Delete a table.

    The table is inaccessible at once, and its name is free. `sleeper table undelete` brings it
    back, until garbage collection deletes its files, except those that clones need, after
    sleeper.table.deletion.delay.hours. Deletes an unfinished clone too, which cannot be brought
    back. Asks for confirmation.

    \b
    Examples:
      sleeper table delete flights --yes
      sleeper table delete flights --now
    """
    from sleeper.admin.tables import delete_table

    description = _describe_deletion(instance, name, now)
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter(f"cannot ask whether to {description} (expected --yes)")
    if not yes:
        typer.confirm(f"{description}?", abort=True, err=True)
    table = delete_table(instance, name, now)
    if table.deleted_ms is None:
        note(f"deleting table {name}")
    else:
        note(f"deleted table {name}; to bring it back, run: sleeper table undelete {table.id}")


def _describe_deletion(instance: "Instance", name: str, now: bool) -> str:
    """Describes the deletion, with the table's rows and size if its state is readable."""
    from sleeper.errors import DataError, NotFoundError, UnavailableError
    from sleeper.reports.output import pluralize
    from sleeper.reports.text_table import format_bytes
    from sleeper.tables import find_clones, find_deleted

    index = instance.tables.index
    try:
        index.find(name)
    except NotFoundError:
        if find_clones(index, name):
            return f"delete the unfinished clone {name}"
        if not now:
            raise
        find_deleted(index, name)
        return f"delete the files of the deleted table {name}"
    try:
        with instance.table(name).state.reading() as state:
            totals = state.files.totals()
    except (DataError, NotFoundError, UnavailableError):
        return f"delete table {name}, whose state cannot be read"
    size = f"{pluralize(totals.rows, 'row')} in {format_bytes(totals.bytes)}"
    return f"delete table {name} with {size}" + (" for ever" if now else "")


@commands.command("undelete")
@instance_command
def undelete(
    instance: "Instance",
    name: Annotated[
        str, typer.Argument(metavar="NAME|ID", help="Name or id of the deleted table.")
    ],
) -> None:
    """Bring a deleted table back, with its rows, history and properties.

    `sleeper table list --deleted` lists the tables.

    \b
    Example:
      sleeper table undelete flights
    """
    from sleeper.admin.tables import undelete_table

    table = undelete_table(instance, name)
    note(f"brought table {table.name} back")


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
