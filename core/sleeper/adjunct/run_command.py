"""`sleeper adjunct run`."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.adjunct.command_options import Input, StorePath, feed_context, find_path
from sleeper.cli.output import note
from sleeper.errors import InvalidRequestError
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.options import secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sleeper.adjunct.definition import StoreDefinition
    from sleeper.adjunct.extraction import ExtractorSource
    from sleeper.adjunct.versions.status import StoreStatus

_STOPPED = "stopped"
# The options of one store, by the names of the parameters.
_STORE_OPTIONS = {
    "store": "--store",
    "source": "--input",
    "engine": "--type",
    "no_bootstrap": "--no-bootstrap",
    "partition": "--partition",
    "max_age": "--max-age",
    "ttl": "--ttl",
    "password": "--password",
}


def run(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="NAME", help="Name of one store, whose input is --input."),
    ] = None,
    source: Input = None,
    engine: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="rocksdb or memory.")
    ] = "rocksdb",
    no_bootstrap: Annotated[
        bool,
        typer.Option("--no-bootstrap", help="Answer lookups before there is a complete copy."),
    ] = False,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", metavar="I/N", help="Only keys whose hash modulo N is I, from 0."
        ),
    ] = None,
    max_age: Annotated[
        str,
        typer.Option(
            "--max-age", metavar="TIME", help="A copy not updated for so long is made again."
        ),
    ] = "1d",
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl", metavar="TIME", help="A value is returned for so long after it was written."
        ),
    ] = None,
    password: Annotated[
        str | None,
        typer.Option("--password", metavar="REFERENCE", help=secret("Password of the input").help),
    ] = None,
    every: Annotated[
        float,
        typer.Option("--every", min=0.01, metavar="SECONDS", help="Time between two updates."),
    ] = 1.0,
    until_current: Annotated[
        bool,
        typer.Option("--until-current", help="End when the store has all that its input has."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Properties file with all stores, instead of --store.",
        ),
    ] = None,
    path: StorePath = None,
) -> None:
    """Fill stores and keep them up to date, until interrupted.

    Can be stopped or killed at any time; the next run continues. Writes a line whenever a store
    was loaded or a new version serves.

    \b
    Examples:
      sleeper adjunct run --store accounts --input table:accounts
      sleeper adjunct run --store accounts --input table:accounts --until-current
      sleeper adjunct run --store accounts-0 --input table:accounts --partition 0/4
      sleeper adjunct run --config stores.properties
    """
    from sleeper.adjunct.definition import add_password, parse_store
    from sleeper.adjunct.run_stores import run_stores

    parent = find_path(context, path)
    _check_options(context, config)
    if config is None:
        if store is None or source is None:
            raise typer.BadParameter("expected --store with --input")
        extractors = None
        text = add_password(source, password)
        definition = parse_store(
            *(store, text, engine, not no_bootstrap),
            max_age=max_age,
            partition=partition,
            ttl=ttl,
        )
        definitions = [definition]
    else:
        extractors, definitions = _read_config(config)
    try:
        with (
            interrupted_by_sigterm(),
            feed_context(context, extractors) as feeds,
            _show_log(),
            _show_statuses() as listener,
        ):
            run_stores(definitions, parent, feeds, until_current, every, listener)
    except KeyboardInterrupt:
        if until_current:
            raise
        note(_STOPPED)


def _check_options(context: typer.Context, config: Path | None) -> None:
    """Raises BadParameter for an option of one store beside --config."""
    given = [
        option
        for name, option in _STORE_OPTIONS.items()
        if getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"
    ]
    if config is not None and given:
        raise typer.BadParameter(
            f"{given[0]} does not go with --config (expected it in the file, for each store)"
        )


def _read_config(path: Path) -> tuple["ExtractorSource", list["StoreDefinition"]]:
    from sleeper.adjunct.config import check_kinds, read_config
    from sleeper.adjunct.extraction import ExtractorSource

    config = read_config(path)
    check_kinds(config)
    if not config.stores:
        raise InvalidRequestError(f"{path} has no stores (expected stores.NAME.adstore.input)")
    extractors = ExtractorSource(config=config.values, allows_imports=True)
    return extractors, [each.definition for each in config.stores]


@contextmanager
def _show_log() -> Iterator[None]:
    """Writes what stores log, such as a line per switch, to standard error."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
            note(f"{prefix}{self.format(record)}")

    logger, handler = logging.getLogger("sleeper.adjunct"), Notes()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def _show_statuses() -> "Iterator[Callable[[Sequence[StoreStatus]], object]]":
    """Returns a listener that shows the stores in a line, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as line:
        yield lambda statuses: line.update("; ".join(_describe(each) for each in statuses))


def _describe(status: "StoreStatus") -> str:
    from sleeper.reports.output import pluralize

    if status.building is not None:
        return f"{status.name}: {pluralize(status.building, 'key')} loaded"
    if status.problem is not None:
        return f"{status.name}: {status.problem}"
    return f"{status.name}: {'serving' if status.is_serving else 'waiting for a dataset'}"
