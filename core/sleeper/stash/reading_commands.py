"""`sleeper stash latest`, `list`, `tables`, `describe`, `splits`, `scan` and `policy`."""

import json
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import OutputKind, OutputOption
from sleeper.cli.output import print_listings, warn
from sleeper.stash.commands import Destination, stash
from sleeper.stash.layout import StashFormat

if TYPE_CHECKING:
    from sleeper.stash.reader import Stash

__all__ = ["stash"]

Root = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="STASH",
        help="Name of a stash, such as 2026-01-31-00-00-00. Default: the latest.",
    ),
]
StashedTableName = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table.")]


@stash.command("latest")
def latest(destination: Destination) -> None:
    """Print the name of the stash that was completed last.

    \b
    Example:
      sleeper stash latest --destination /data/stash
    """
    from sleeper.stash.destination import open_to_read

    typer.echo(open_to_read(destination).latest())


@stash.command("list")
def list_stashes(destination: Destination, output: OutputOption = OutputKind.TEXT) -> None:
    """List the stashes of a destination, newest first.

    An incomplete stash is being written, was interrupted, or has a damaged _SUCCESS.

    \b
    Examples:
      sleeper stash list --destination /data/stash
      sleeper stash list --destination /data/stash --output json
    """
    from sleeper.stash.destination import open_to_read
    from sleeper.stash.listings import list_roots

    opened = open_to_read(destination)
    roots = opened.roots()
    print_listings([list_roots(opened, roots)], output)
    warn(f"stash {each.name} is ignored: {each.damage}" for each in roots if each.damage)


@stash.command("tables")
def tables(
    destination: Destination, at: Root = None, output: OutputOption = OutputKind.TEXT
) -> None:
    """List the tables of a stash, with the transaction number at which each was copied.

    \b
    Examples:
      sleeper stash tables --destination /data/stash
      sleeper stash tables --destination /data/stash --at 2026-01-31-00-00-00
    """
    from sleeper.stash.listings import list_tables

    opened = _open(destination, at)
    root = opened.lock() if at is None else at
    print_listings([list_tables(destination, root, opened.find_tables())], output)


@stash.command("splits")
def splits(table: StashedTableName, destination: Destination, at: Root = None) -> None:
    """Print the splits of a stashed table, one per line.

    Splits can be read in parallel with `sleeper stash scan --split`. Each is always read from the
    stash that it came from.

    \b
    Example:
      sleeper stash splits flights --destination /data/stash
    """
    for each in _open(destination, at).splits(table):
        typer.echo(each)


@stash.command("describe")
def describe(
    table: StashedTableName,
    destination: Destination,
    at: Root = None,
    count_rows: Annotated[
        bool, typer.Option("--count-rows", help="Count the rows of each file, which reads it.")
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """List the files of a stashed table: the URI, size and split of each.

    \b
    Examples:
      sleeper stash describe flights --destination s3://my-bucket/stash
      sleeper stash describe flights --destination /data/stash --count-rows --output json
    """
    from sleeper.stash.listings import list_files

    files = _open(destination, at).describe_table(table, count_rows=count_rows)
    print_listings([list_files(files)], output)


@stash.command("scan")
def scan(
    table: StashedTableName,
    destination: Destination,
    at: Root = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="SPLIT", help="Read only this split.")
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Print the bytes as they are stored. A Parquet file needs --split."
        ),
    ] = False,
) -> None:
    """Print the rows of a stashed table, a JSON object per line.

    \b
    Examples:
      sleeper stash scan flights --destination /data/stash
      sleeper stash scan flights --destination /data/stash --at 2026-01-31-00-00-00
      sleeper stash scan flights --destination /data/stash --raw > flights.json.gz
    """
    if split is not None and at is not None:
        raise typer.BadParameter("--split and --at exclude each other: a split belongs to a stash")
    opened = _open(destination, at)
    if raw:
        _print_stored(opened, table, split)
        return
    with opened.scan(table) if split is None else opened.split(table, split) as rows:
        for lines in rows.lines():
            sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


def _print_stored(opened: "Stash", table: str, split: str | None) -> None:
    """Prints the files of a table one after another, which as gzip are one file."""
    if split is None:
        described = opened.describe_table(table)
        splits = [each.split for each in described.files]
        if described.format is StashFormat.PARQUET and len(splits) > 1:
            raise typer.BadParameter(f"--raw of {len(splits)} Parquet files (expected --split)")
    else:
        splits = [split]
    for each in splits:
        with opened.open_split(table, each) as stored:
            shutil.copyfileobj(stored, sys.stdout.buffer)
    sys.stdout.buffer.flush()


@stash.command("policy")
def policy(destination: Destination) -> None:
    """Print the IAM policy with which stashes in S3 can be read: nothing else is needed.

    \b
    Example:
      sleeper stash policy --destination s3://my-bucket/stash
    """
    from sleeper.stash.destination import reading_policy

    typer.echo(json.dumps(reading_policy(destination), indent=2))


def _open(destination: str, at: str | None) -> "Stash":
    from sleeper.stash.reader import Stash

    opened = Stash.open(destination)
    if at is not None:
        opened.lock(at)
    return opened
