"""`sleeper adjunct`: local read-only copies of datasets, which follow their inputs."""

import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sleeper.adjunct.command_options import (
    Input,
    NoWait,
    StoreName,
    StorePath,
    feed_context,
    find_path,
)
from sleeper.adjunct.run_command import run
from sleeper.cli.arguments import LIMIT_MAX, OutputKind, OutputOption, parse_key_values
from sleeper.cli.output import note, print_listings, show_stages
from sleeper.errors import NotFoundError, SleeperError

if TYPE_CHECKING:
    from sleeper.adjunct.versions.status import StoreStatus
    from sleeper.adjunct.versions.version import StoreReader

adjunct = typer.Typer(
    help="Fill and read adjunct stores: local copies of tables, files or streams, for lookups.",
    no_args_is_help=True,
)


@adjunct.command("list")
def list_all(
    context: typer.Context, path: StorePath = None, output: OutputOption = OutputKind.TEXT
) -> None:
    """List the stores of a folder, with the process that fills each.

    \b
    Examples:
      sleeper adjunct list
      sleeper adjunct list --path /data/stores --output json
    """
    from sleeper.adjunct.control import find_status
    from sleeper.adjunct.report import list_stores
    from sleeper.adjunct.versions.folder import store_names

    parent = find_path(context, path)
    names = [] if path is None and not parent.exists() else store_names(parent)
    statuses = [find_status(parent, name) for name in names]
    print_listings([list_stores(statuses, str(parent))], output)


@adjunct.command("status")
def status(
    context: typer.Context,
    name: StoreName,
    path: StorePath = None,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Show how far a store is.

    The process that fills it says how far it is behind its input. If there is none, this command
    asks the input, which may need --instance.

    \b
    Examples:
      sleeper adjunct status accounts
      sleeper adjunct status accounts --path /data/stores --output json | jq '.lag, .problem'
    """
    from sleeper.adjunct.control import find_status
    from sleeper.adjunct.report import describe_status

    parent = find_path(context, path)
    current = find_status(parent, name)
    if current.filled_by is None and current.is_serving:
        current = _add_lag(context, parent, current)
    print_listings([describe_status(current)], output)


@adjunct.command("get")
def get(
    context: typer.Context,
    name: StoreName,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]...",
            help="Keys: CSV with a value per key field, byte arrays as base64.",
        ),
    ] = None,
    key_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="MIN:MAX",
            help="Keys whose first field is at least MIN and less than MAX. An empty bound is "
            'open; quote a value that contains a colon ("a:b":c).',
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All keys, in their order.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            max=LIMIT_MAX,
            metavar="N",
            help="Maximum number of keys. Default: all.",
        ),
    ] = None,
    path: StorePath = None,
) -> None:
    """Print keys with their values, a JSON object per line.

    Reads what the process that fills the store has written until now. Ends with status 1 if the
    store lacks one of the keys.

    \b
    Examples:
      sleeper adjunct get accounts 42
      sleeper adjunct get accounts 42 43 | jq .value.name
      sleeper adjunct get visits 'Paris,2026' --path /data/stores
      sleeper adjunct get accounts --range 100:200
      sleeper adjunct get accounts --all --limit 10
    """
    from sleeper.adjunct.versions.version import StoreReader

    if bool(keys) + (key_range is not None) + everything != 1:
        raise typer.BadParameter("expected one of: keys, --range, --all")
    with closing(StoreReader(find_path(context, path), name)) as reader:
        missing = _print_pairs(reader, keys or [], key_range, limit)
    if missing:
        raise NotFoundError(f"store {name!r} has no key {', '.join(missing)}")


@adjunct.command("rebuild")
def rebuild(
    context: typer.Context,
    name: StoreName,
    source: Input = None,
    no_wait: NoWait = False,
    path: StorePath = None,
) -> None:
    """Load a store again from its input. The version that serves does so until the end.

    The process that fills the store does it. If there is none, this command does, with the input
    that the store had, or --input if the store is damaged.

    \b
    Examples:
      sleeper adjunct rebuild accounts
      sleeper adjunct rebuild accounts --path /data/stores --input table:accounts
    """
    from sleeper.adjunct.control import rebuild as rebuild_store
    from sleeper.reports.output import pluralize

    parent = find_path(context, path)
    with feed_context(context) as feeds, show_stages(f"store {name}") as on_stage:
        is_done = rebuild_store(
            *(parent, name, feeds, source, 0 if no_wait else None),
            on_rows=lambda rows: on_stage(pluralize(rows, "key")),
        )
    note(f"rebuilt store {name}" if is_done else f"asked for a rebuild of store {name}")


@adjunct.command("seal")
def seal(
    context: typer.Context, name: StoreName, no_wait: NoWait = False, path: StorePath = None
) -> None:
    """End the dataset that a store is building, and switch to it, without its marker.

    For bounded streams whose marker will not come. The process that fills the store does it.

    \b
    Example:
      sleeper adjunct seal prices
    """
    from sleeper.adjunct.control import seal as seal_store

    is_done = seal_store(find_path(context, path), name, 0 if no_wait else None)
    note(f"sealed store {name}" if is_done else f"asked for a seal of store {name}")


def _print_pairs(
    reader: "StoreReader", keys: list[str], key_range: str | None, limit: int | None
) -> list[str]:
    """Prints keys with values. Returns the texts of keys that the store lacks."""
    from itertools import islice

    from sleeper.adjunct.report import pairs_as_json
    from sleeper.cli.arguments import parse_bounds
    from sleeper.schema.key_values import plain_key_value
    from sleeper.schema.model import Field

    version = reader.serving
    layout = version.state.layout
    if layout is None:
        return keys
    pairs: Iterable[tuple[Any, bytes]]
    fields = [Field(each.name, each.type) for each in layout.keys]
    if keys:
        parsed = [[*map(plain_key_value, fields, parse_key_values(fields, text))] for text in keys]
        wanted = [each[0] if len(each) == 1 else tuple(each) for each in parsed]
        values = version.get_contents(version.keys.encode_many(wanted))
        pairs = [
            (key, value) for key, value in zip(wanted, values, strict=True) if value is not None
        ]
        missing = [text for text, value in zip(keys, values, strict=True) if value is None]
    else:
        low, high = (None, None) if key_range is None else parse_bounds(fields[0], key_range)
        # A range is of the first field.
        plain = [None if each is None else plain_key_value(fields[0], each) for each in (low, high)]
        ends = [each if each is None or len(fields) == 1 else (each,) for each in plain]
        pairs, missing = version.scan_contents(*ends), []
    for line in pairs_as_json(reader.folder.name, layout, islice(pairs, limit)):
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    return missing


def _add_lag(context: typer.Context, parent: Path, status: "StoreStatus") -> "StoreStatus":
    from dataclasses import replace

    from sleeper.adjunct.control import measure_lag

    try:
        with feed_context(context) as feeds:
            lag = measure_lag(parent, status.name, feeds)
    except SleeperError as error:
        note(f"the lag is unknown: {error}")
        return status
    return replace(status, lag=lag.behind, newest=lag.newest)


adjunct.command("run")(run)
