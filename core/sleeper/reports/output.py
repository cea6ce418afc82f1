"""Writing listings: as text for people, or as JSON lines for programs."""

import json
from collections.abc import Callable, Iterator
from shutil import get_terminal_size
from typing import TextIO

from sleeper.clock import iso_time
from sleeper.query.printable import printable
from sleeper.reports.listing import ColumnKind, Listing, Value

Output = Callable[[Listing, TextIO], None]
"""Writes one listing."""

_WIDTH_WITHOUT_TERMINAL = 1000


def write_text(listing: Listing, stream: TextIO) -> None:
    """A summary line, a drawing or a table if there are rows, and what is left out.

    Fits a table to the terminal, if it is one.
    """
    stream.write(f"{printable(listing.summary)}\n")
    if listing.drawing:
        stream.writelines(f"{printable(line)}\n" for line in listing.drawing)
    elif listing.rows:
        from sleeper.reports.text_table import text_table

        stream.write(text_table(listing, _width_of(stream)))
    if listing.note:
        stream.write(f"({printable(listing.note)})\n")


def write_json(listing: Listing, stream: TextIO) -> None:
    """One JSON object a row; `report` names the listing. Times are ISO 8601 in UTC."""
    for members in json_rows(listing):
        stream.write(json.dumps({"report": listing.name, **members}, ensure_ascii=False) + "\n")


def json_rows(listing: Listing) -> Iterator[dict[str, Value]]:
    """The rows as JSON has them, by column."""
    for row in listing.rows:
        yield {
            column.name: iso_time(value)
            if column.kind is ColumnKind.TIME and isinstance(value, int)
            else value
            for column, value in zip(listing.columns, row, strict=True)
        }


OUTPUTS: dict[str, Output] = {"text": write_text, "json": write_json}
"""By the name that the command line takes."""


def _width_of(stream: TextIO) -> int:
    return get_terminal_size().columns if stream.isatty() else _WIDTH_WITHOUT_TERMINAL
