"""Lays a listing's rows out for people, in the width that there is."""

import io
import json
from collections.abc import Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from sleeper.clock import iso_time
from sleeper.query.printable import printable
from sleeper.reports.output import Column, ColumnKind, Listing, Value

_NUMERIC = {ColumnKind.COUNT, ColumnKind.BYTES, ColumnKind.SECONDS}
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_TEXT_LENGTH_MAX = 100
_GAP = 2
_DATE_LENGTH = len("2026-01-31")
# Longer words, such as ids, are broken where the terminal is narrow.
_WORD_LENGTH_KEPT = 12


def text_table(listing: Listing, width: int) -> str:
    """The rows under their headings, or where that is too wide, each row as lines of its own.

    Columns that have no value in any row are left out. Times are in UTC, to the second.
    """
    columns = [
        (column, [_as_text(column, row[i]) for row in listing.rows])
        for i, column in enumerate(listing.columns)
    ]
    told = [(column, texts) for column, texts in columns if any(texts)]
    widths = _column_widths(told, width)
    return _records(told) if widths is None else _table(told, widths)


def _column_widths(columns: Sequence[tuple[Column, list[str]]], width: int) -> list[int] | None:
    """How wide each column is so that all fit; None if they cannot."""
    widest = [max(map(cell_len, [c.heading, *texts])) for c, texts in columns]
    least = [_least_width(column, texts) for column, texts in columns]
    excess = sum(widest) + _GAP * (len(columns) - 1) - width
    while excess > 0:
        can_shrink = [i for i, w in enumerate(widest) if w > least[i]]
        if not can_shrink:
            return None
        widest[max(can_shrink, key=widest.__getitem__)] -= 1
        excess -= 1
    return widest


def _least_width(column: Column, texts: list[str]) -> int:
    """How narrow the column may get: numbers and words are not broken, times after the date."""
    longest, heading = max(map(cell_len, texts)), max(map(cell_len, column.heading.split()))
    if column.kind in _NUMERIC:
        return max(longest, heading)
    kept = _DATE_LENGTH if column.kind is ColumnKind.TIME else _WORD_LENGTH_KEPT
    return max(min(longest, kept), heading)


def _table(columns: Sequence[tuple[Column, list[str]]], widths: Sequence[int]) -> str:
    # The gap is a space after each column and the box's own between two.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for (column, _), width in zip(columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.kind in _NUMERIC else "left"
        table.add_column(column.heading, justify=justify, overflow="fold", width=width)
    for row in zip(*(texts for _, texts in columns), strict=True):
        table.add_row(*(Text(text) for text in row))
    buffer = io.StringIO()
    total = sum(widths) + _GAP * len(widths)
    Console(file=buffer, width=total, no_color=True, highlight=False).print(table)
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def _records(columns: Sequence[tuple[Column, list[str]]]) -> str:
    """A line for each value, and an empty one between rows."""
    heading_width = max(cell_len(column.heading) for column, _ in columns)
    records = [
        "".join(
            f"{column.heading:<{heading_width}}  {text}\n"
            for (column, _), text in zip(columns, row, strict=True)
            if text
        )
        for row in zip(*(texts for _, texts in columns), strict=True)
    ]
    return "\n".join(records)


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
    line = printable(" ".join(text.split()))
    return line if len(line) <= _TEXT_LENGTH_MAX else line[: _TEXT_LENGTH_MAX - 1] + "…"


def _byte_text(count: float) -> str:
    power = 0
    while count >= 1024 and power < len(_BYTE_UNITS) - 1:
        count /= 1024
        power += 1
    return (
        f"{count:,.0f} {_BYTE_UNITS[power]}" if power == 0 else f"{count:,.1f} {_BYTE_UNITS[power]}"
    )
