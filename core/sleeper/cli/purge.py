"""`sleeper purge`: removes deleted rows from the storage."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import KeysOption, RangesOption, RegionsOption, TableName
from sleeper.cli.output import listing_command, show_stages

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.purging.report import PurgedObject
    from sleeper.reports.output import Listing


@listing_command
def purge(
    instance: "Instance",
    name: TableName,
    keys: KeysOption = None,
    ranges: RangesOption = None,
    regions: RegionsOption = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for whatever keeps an object, until none is kept."),
    ] = False,
) -> "Iterable[Listing]":
    """Remove deleted rows from the storage and report what is gone.

    Rewrites the files that may hold deleted rows, deletes the replaced files, older snapshots
    and the log, and rewrites the state's file. Without --key, --range and --region it removes
    all rows that are deleted now. A row that is not deleted is an error.

    The report lists each object as gone, as kept with what keeps it and until when, or as
    remaining where a purge cannot remove it. A purge can be interrupted and repeated.

    \b
    Examples:
      sleeper purge flights
      sleeper purge flights --key N14228 --wait
      sleeper purge flights --wait --output json
    """
    instance.table(name)  # fails before the engine takes a second to load
    from sleeper.cli.arguments import parse_selection
    from sleeper.purging.report import describe_purge
    from sleeper.purging.service import purge_table
    from sleeper.query.service import read_schema

    selected = parse_selection(read_schema(instance, name), keys or (), ranges or (), regions or ())
    with show_stages(f"purging {name}") as show:

        def show_kept(first: "PurgedObject", count: int) -> None:
            show(f"{count:,} kept, such as {first.object}: {first.reason}")

        report = purge_table(instance, name, selected, wait, show_kept)
    return [describe_purge(report)]
