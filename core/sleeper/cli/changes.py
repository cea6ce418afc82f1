"""`sleeper changes`: what each transaction changed, in order."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from sleeper.cli.arguments import TableName
from sleeper.cli.output import RowFormat, instance_command, note, open_row_sink
from sleeper.reports.output import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

    from sleeper.instance import Instance
    from sleeper.query.changes.reader import ChangeReader

_FORMAT_NAMES = {"jsonl": RowFormat.JSON} | {str(each): each for each in RowFormat}


@instance_command
def changes(
    instance: "Instance",
    name: TableName,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME|AGE",
            help="Begin after a time (ISO 8601, UTC without a zone) or an age (such as 30m, 2h or "
            "2d).",
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            metavar="N",
            help="Begin with transaction N. Default: the table's first transaction.",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--to",
            min=1,
            metavar="N",
            help="End with transaction N. Default: the newest transaction.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new transactions.")
    ] = False,
    follower: Annotated[
        str | None,
        typer.Option(
            "--follower",
            metavar="NAME",
            help="Continue at the position of this follower, and record its progress. A new name "
            "begins at --since or --from.",
        ),
    ] = None,
    row_format: Annotated[
        RowFormat | None,
        typer.Option("--format", help="Default: the format of the --output suffix, or json."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the changes to this file. The name of a format, such as jsonl or arrow, "
            "selects the format of standard output instead.",
        ),
    ] = None,
) -> None:
    """Print what each transaction changed, in order.

    Prints a line of JSON for each row: the transaction's number, time and job, the operation, and
    the row. A delete prints a line for each region. A follower's progress is recorded after its
    changes were written, so an interrupted command repeats some changes, with the same numbers.

    \b
    Examples:
      sleeper changes flights --from 4 --to 6
      sleeper changes flights --since 2d --output changes.parquet
      sleeper changes flights --follow --follower to-archive | ./load.sh
      sleeper changes flights --from 4 --output changes.arrow
    """
    instance.table(name)  # fails before the engine takes a second to load
    from sleeper.query.changes.service import make_changes_request, open_changes

    start = time.monotonic()
    row_format, output = _choose_format(row_format, output)
    is_stream = output is None and row_format is not RowFormat.PARQUET
    if follow and last is None and not is_stream:
        raise typer.BadParameter(
            "--follow without --to never completes a file: write JSON lines or an Arrow stream to "
            "standard output"
        )
    request = make_changes_request(since, first, last, follow, follower)
    with open_changes(instance, name, request, commits=is_stream) as reader:
        if reader.is_new:
            note(f"created follower {follower} of table {name} at transaction {reader.start:,}")
        rows = _write(reader, row_format, output)
        reader.commit()
    seconds = time.monotonic() - start
    note(f"{pluralize(rows, 'row')} up to transaction {reader.position:,}, {seconds:,.1f} s")


def _choose_format(
    row_format: RowFormat | None, output: Path | None
) -> tuple[RowFormat, Path | None]:
    """Returns the format, and the file unless it is the name of a format."""
    if row_format is None and str(output) in _FORMAT_NAMES:
        return _FORMAT_NAMES[str(output)], None
    if row_format is None and (output is None or not output.suffix):
        return RowFormat.JSON, output
    return RowFormat.choose(row_format, output), output


def _write(reader: "ChangeReader", row_format: RowFormat, output: Path | None) -> int:
    from sleeper.query.changes.read import feed_schema
    from sleeper.query.rows.output import ROW_OUTPUTS

    with open_row_sink(row_format, output) as sink:
        schema = feed_schema(reader.schema)
        is_fixed = row_format is not RowFormat.JSON
        return ROW_OUTPUTS[row_format](schema, _flushed(reader, sink, is_fixed), sink)


def _flushed(
    reader: "ChangeReader", sink: BinaryIO, is_fixed: bool = False
) -> "Iterator[pa.RecordBatch]":
    """Yields the changes, each after the one before was written, so that it counts as taken.

    `is_fixed` means that all must have the same columns.
    """
    from sleeper.query.changes.read import check_columns

    for change in reader:
        yield (check_columns(change, reader.schema) if is_fixed else change).to_arrow()
        sink.flush()
