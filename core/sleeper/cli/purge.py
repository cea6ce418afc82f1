"""`sleeper purge`: removes deleted rows from the storage."""

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import KeysOption, RangesOption, RegionsOption, TableName
from sleeper.cli.output import listing_command, note, show_stages
from sleeper.clock import parse_duration

if TYPE_CHECKING:
    from sleeper.instance import Instance
    from sleeper.purging.report import PurgedObject
    from sleeper.reports.output import Listing

_SECONDS_BETWEEN_NOTES = 10.0


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
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            help="With --wait: fail after this time, such as 30m. Default: none.",
        ),
    ] = None,
) -> "Iterable[Listing]":
    """Remove deleted rows from the storage and report what is gone.

    Rewrites the files that may hold deleted rows, deletes the replaced files, older snapshots
    and the log, and rewrites the state's file. Without --key, --range and --region it removes
    all rows that are deleted now. A row that is not deleted is an error.

    The report lists each object as gone, as kept with what keeps it and until when, or as
    remaining where a purge cannot remove it. A purge can be interrupted and repeated. With
    --wait, it prints every ten seconds which object it waits for.

    \b
    Examples:
      sleeper purge flights
      sleeper purge flights --key N14228 --wait
      sleeper purge flights --wait --timeout 1h --output json
    """
    timeout_seconds = None if timeout is None else _parse_timeout(timeout, wait)
    instance.table(name)  # fails before the engine takes a second to load
    from sleeper.cli.arguments import parse_selection
    from sleeper.errors import UnavailableError
    from sleeper.purging.report import describe_purge
    from sleeper.purging.service import purge_table
    from sleeper.query.service import read_schema
    from sleeper.reports.output import pluralize

    selected = parse_selection(read_schema(instance, name), keys or (), ranges or (), regions or ())
    kept = ""
    shown_seconds = -math.inf

    def show_kept(first: "PurgedObject", count: int) -> None:
        nonlocal kept, shown_seconds
        kept = f"{pluralize(count, 'object')} kept, such as {first.object}: {first.reason}"
        if time.monotonic() - shown_seconds >= _SECONDS_BETWEEN_NOTES:
            note(f"waiting: {kept}")
            shown_seconds = time.monotonic()

    with show_stages(f"purging {name}"):
        report = purge_table(
            instance, name, selected, wait, show_kept, timeout_seconds=timeout_seconds
        )
    yield describe_purge(report)
    if wait and not report.is_complete:
        raise UnavailableError(f"purge of {name} not complete after {timeout}: {kept}")


def _parse_timeout(text: str, wait: bool) -> float:
    milliseconds = parse_duration(text)
    if milliseconds is None:
        raise typer.BadParameter(f"--timeout {text}: not a duration (expected one such as 30m)")
    if not wait:
        raise typer.BadParameter("--timeout without --wait (expected both)")
    return milliseconds / 1000
