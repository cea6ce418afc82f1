"""`sleeper table delete` and `undelete`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import TableName
from sleeper.cli.output import instance_command, note

if TYPE_CHECKING:
    from sleeper.instance import Instance


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
    return f"delete table {name} with {size}" + (" permanently" if now else "")


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
    note(f"undeleted table {table.name}")
