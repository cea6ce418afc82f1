"""`sleeper queries`: queries as messages, which the instance's workers run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from sleeper.cli.opened import opened
from sleeper.cli.output import OutputKind, OutputOption, note, print_listings
from sleeper.errors import InvalidRequestError, classify_error, describe_error

commands = typer.Typer(
    help="Send queries as messages, and see what became of them.", no_args_is_help=True
)


@commands.command("send")
def send(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The message; - for input.")],
) -> None:
    """Send a query to the instance's queue, and print its id.

    The message is JSON: type, tableName and regions, and more if you like. Workers run it (on a
    folder those of `sleeper run`); its rows go where it says.

    \b
    Examples:
      sleeper queries send query.json
      jq '.queryId = "again"' query.json | sleeper queries send -
    """
    body = sys.stdin.read() if file == "-" else _read(Path(file))
    with opened(context) as instance:
        from sleeper.query_service.service import send_query

        typer.echo(send_query(instance, body))


@commands.command("show")
def show(
    context: typer.Context,
    query_id: Annotated[str, typer.Argument(metavar="QUERY_ID")],
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Show what became of a query and of its subqueries, and where its rows are.

    \b
    Examples:
      sleeper queries show all-of-it
      sleeper queries show all-of-it --output json
    """
    with opened(context) as instance:
        from sleeper.query_service.service import show_query

        report, place = show_query(instance, query_id)
        print_listings([report.listing()], output)
        if place is not None:
            note(f"results: {place}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        raise classify_error(
            error, f"cannot read {path}: {describe_error(error)}", InvalidRequestError
        ) from error
