"""Writing listings: as text for people, or as JSON lines for programs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from shutil import get_terminal_size
from typing import TextIO, Union

from sleeper.clock import iso_time
from sleeper.query.printable import printable

Value = Union[str, int, float, bool, None, Sequence["Value"], Mapping[str, "Value"]]  # noqa: UP007
"""What JSON can hold."""


class ColumnKind(Enum):
    """How a person reads a column's values."""

    TEXT = "text"
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    TIME = "time"
    """Milliseconds since the epoch."""
    PATH = "path"
    """People read the name of the file; JSON has all of it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its JSON member, and what stands over it in text."""

    name: str
    heading: str
    kind: ColumnKind = ColumnKind.TEXT


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with a value, or None, for each column. `summary` is for people.

    So are `drawing`, lines that text shows in the place of the rows, and `note`, which
    says what is left out.
    """

    name: str
    summary: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    drawing: tuple[str, ...] = ()
    note: str | None = None


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Such as `1 table` and `2 tables`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def note_of_more(total: int, shown: int, noun: str) -> str | None:
    """What to say of those that a limit left out; None if it left out none."""
    return f"{counted(total - shown, 'more ' + noun)}: see --limit" if total > shown else None


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
