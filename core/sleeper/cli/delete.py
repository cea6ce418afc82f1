"""`sleeper delete`: deletes rows by key, by range or by region."""

from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import (
    KeysOption,
    RangesOption,
    RegionsOption,
    TableName,
)
from sleeper.cli.output import instance_command, note

if TYPE_CHECKING:
    from sleeper.instance import Instance


@instance_command
def delete(
    instance: "Instance",
    name: TableName,
    keys: KeysOption = None,
    ranges: RangesOption = None,
    regions: RegionsOption = None,
    every_row: Annotated[bool, typer.Option("--all", help="Delete all rows of the table.")] = False,
    delete_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Id of the delete. A repeated delete with the same id changes nothing.",
        ),
    ] = None,
    submit: Annotated[
        bool,
        typer.Option(
            "--submit",
            help="Send the delete to the queue, print its id, and exit. `sleeper run` or the "
            "functions on AWS run it.",
        ),
    ] = False,
) -> None:
    """Delete rows of a table, in one transaction.

    Queries stop returning the rows at once. Compactions remove them from the files later. Rows
    that are ingested after the delete are kept. A delete that waits in the queue also deletes rows
    that are ingested meanwhile.

    \b
    Examples:
      sleeper delete flights --key N14228
      sleeper delete flights --range N10:N11 --key N14228
      sleeper delete flights --all
      sleeper delete flights --key N14228 --id erase-1 --submit
    """
    instance.table(name)  # fails before the engine takes a second to load
    from sleeper.cli.arguments import parse_selection
    from sleeper.deletion.message import submit_delete
    from sleeper.deletion.service import delete_rows
    from sleeper.errors import InvalidRequestError
    from sleeper.partitions.region import whole_region
    from sleeper.query.service import read_schema

    schema = read_schema(instance, name)
    selected = parse_selection(schema, keys or (), ranges or (), regions or ())
    if every_row and selected:
        raise InvalidRequestError("--all deletes all rows (expected no --key, --range or --region)")
    if not selected and not every_row:
        raise InvalidRequestError(
            "no rows to delete (expected --key, --range or --region, or --all for all rows)"
        )
    deleted = selected or (whole_region(schema),)
    if submit:
        typer.echo(submit_delete(instance, name, deleted, delete_id))
        return
    result = delete_rows(instance, name, deleted, delete_id)
    if result.already_done:
        note(f"delete {result.id} is already done: transaction {result.number}")
    else:
        note(f"deleted rows from {name}: transaction {result.number} (delete {result.id})")
