"""The `sleeper` command."""

from typing import Annotated

import typer

from sleeper import __version__

app = typer.Typer(
    name="sleeper",
    help="A record store that costs nothing while it sleeps.",
    no_args_is_help=True,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sleeper {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A record store that costs nothing while it sleeps."""


def main() -> None:
    """Runs the command line."""
    app()
