"""What commands print: listings to standard output, notes to standard error."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.query.printable import printable

if TYPE_CHECKING:
    from sleeper.reports.output import Listing


class OutputKind(StrEnum):
    """The ways to write a listing: for people, or one JSON object a row."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    OutputKind, typer.Option("--output", "-o", help="For people, or one JSON object a line.")
]


def note(text: str) -> None:
    """A line for people, beside the result; between what is printed before and after it."""
    sys.stdout.flush()
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def warn(warnings: Iterable[str]) -> None:
    """Things that a person should know."""
    for warning in warnings:
        note(f"warning: {warning}")


def print_listings(listings: Iterable["Listing"], output: OutputKind) -> None:
    """Writes each listing. As text, they stand apart; as JSON, what is left out is noted."""
    from sleeper.reports.output import OUTPUTS

    for number, listing in enumerate(listings):
        if output is OutputKind.TEXT and number:
            sys.stdout.write("\n")
        OUTPUTS[output.value](listing, sys.stdout)
        if output is OutputKind.JSON and listing.note:
            note(f"note: {listing.note}")
