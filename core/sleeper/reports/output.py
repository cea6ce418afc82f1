"""Writing listings: as text for people, or as JSON lines for programs."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sleeper.clock import iso_time
from sleeper.reports.listing import Column, ColumnKind, Listing, Value

Output = Callable[[Listing, TextIO], None]
"""Writes one listing."""

_NUMERIC = {ColumnKind.COUNT, ColumnKind.BYTES, ColumnKind.SECONDS}
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_WIDTH_WITHOUT_TERMINAL = 1000
_TEXT_LENGTH_MAX = 100


def write_text(listing: Listing, stream: TextIO) -> None:
    """A summary line, and a drawing or a table if there are rows. Times are in UTC, to the second.

    Wraps to the terminal, if it is one.
    """
    stream.write(f"{listing.summary}\n")
    if listing.drawing:
        stream.writelines(f"{line}\n" for line in listing.drawing)
    elif listing.rows:
        stream.write(_rendered(_table_of(listing), _width_of(stream)))
    if listing.note:
        stream.write(f"({listing.note})\n")


def _table_of(listing: Listing) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in listing.columns:
        right = column.kind in _NUMERIC
        table.add_column(column.heading, justify="right" if right else "left")
    for row in listing.rows:
        cells = zip(listing.columns, row, strict=True)
        table.add_row(*(Text(_as_text(column, value)) for column, value in cells))
    return table


def write_json(listing: Listing, stream: TextIO) -> None:
    """One JSON object a row; `report` names the listing. Times are ISO 8601 in UTC."""
    for row in listing.rows:
        members: dict[str, Value] = {"report": listing.name}
        for column, value in zip(listing.columns, row, strict=True):
            is_time = column.kind is ColumnKind.TIME
            members[column.name] = iso_time(value) if is_time and isinstance(value, int) else value
        stream.write(json.dumps(members, ensure_ascii=False) + "\n")


OUTPUTS: dict[str, Output] = {"text": write_text, "json": write_json}
"""By the name that the command line takes."""


def _rendered(table: Table, width: int | None) -> str:
    buffer = io.StringIO()
    Console(file=buffer, width=width, no_color=True, highlight=False).print(table)
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def _width_of(stream: TextIO) -> int | None:
    return Console().width if stream.isatty() else _WIDTH_WITHOUT_TERMINAL


def _as_text(column: Column, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _one_line(value.rpartition("/")[2] if column.kind is ColumnKind.PATH else value)
    if isinstance(value, Mapping):
        return _one_line(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Sequence):
        return _one_line(", ".join(str(each) for each in value))
    match column.kind:
        case ColumnKind.TIME:
            return iso_time(int(value))[:19].replace("T", " ")
        case ColumnKind.BYTES:
            return _byte_text(value)
        case ColumnKind.SECONDS:
            return f"{value:,.1f}"
        case _:
            return f"{value:,.0f}"


def _one_line(text: str) -> str:
    """A line of its own would break the row."""
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_LENGTH_MAX else line[: _TEXT_LENGTH_MAX - 1] + "…"


def _byte_text(count: float) -> str:
    power = 0
    while count >= 1024 and power < len(_BYTE_UNITS) - 1:
        count /= 1024
        power += 1
    return (
        f"{count:,.0f} {_BYTE_UNITS[power]}" if power == 0 else f"{count:,.1f} {_BYTE_UNITS[power]}"
    )
