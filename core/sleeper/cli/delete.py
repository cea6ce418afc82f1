"""`sleeper delete`: deletes rows by key, by keys of files, by range or by region."""

from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import (
    KeysOption,
    RangesOption,
    RegionsOption,
    TableName,
)
from sleeper.cli.output import instance_command, note, show_ingest
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sleeper.deletion.service import DeleteResult
    from sleeper.instance import Instance
    from sleeper.partitions.region import Region


@instance_command
def delete(
    instance: "Instance",
    name: TableName,
    keys: KeysOption = None,
    ranges: RangesOption = None,
    regions: RegionsOption = None,
    keys_from: Annotated[
        list[str] | None,
        typer.Option(
            "--keys-from",
            metavar="FILE",
            help="Delete the rows with a key in this CSV, JSON lines or Parquet file, directory of "
            "such files, or s3://bucket/key. Columns that are no row key fields are ignored. "
            "Repeatable.",
        ),
    ] = None,
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
      sleeper delete flights --keys-from retired.csv --id retired-2013
      sleeper delete flights --all
      sleeper delete flights --key N14228 --id erase-1 --submit
    """
    instance.table(name)  # fails before the engine takes a second to load
    from sleeper.cli.arguments import parse_selection
    from sleeper.deletion.keys import delete_rows
    from sleeper.deletion.message import submit_delete
    from sleeper.deletion.service import check_bounded
    from sleeper.errors import InvalidRequestError
    from sleeper.partitions.region import whole_region
    from sleeper.query.service import read_schema

    schema = read_schema(instance, name)
    selected = parse_selection(schema, keys or (), ranges or (), regions or ())
    if every_row and (selected or keys_from):
        raise InvalidRequestError(
            "--all deletes all rows (expected no --key, --keys-from, --range or --region)"
        )
    check_bounded(schema, selected, "--all")
    if not selected and not every_row and not keys_from:
        raise InvalidRequestError(
            "no rows to delete (expected --key, --keys-from, --range or --region, or --all for all "
            "rows)"
        )
    if keys_from:
        if submit:
            raise typer.BadParameter("--keys-from cannot be used with --submit")
        result = _delete_keys_from(instance, name, keys_from, selected, delete_id)
    else:
        deleted = selected or (whole_region(schema),)
        if submit:
            typer.echo(submit_delete(instance, name, deleted, delete_id))
            return
        result = delete_rows(instance, name, deleted, delete_id)
    if result.already_done:
        note(f"delete {result.id} is already done: transaction {result.number}")
        return
    keys_text = f" with {pluralize(result.keys, 'key')}" if keys_from else ""
    note(f"deleted rows{keys_text} from {name}: transaction {result.number} (delete {result.id})")


def _delete_keys_from(
    instance: "Instance",
    name: str,
    files: list[str],
    regions: "Sequence[Region]",
    delete_id: str | None,
) -> "DeleteResult":
    from sleeper.deletion.keys import DeleteProgress, delete_keys_from

    with interrupted_by_sigterm(), show_ingest(f"delete from {name}") as shown:
        progress = DeleteProgress(shown.rows_read, shown.rows_written)
        return delete_keys_from(instance, name, files, regions, delete_id, progress)
