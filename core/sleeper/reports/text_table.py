"""Listings as text tables fitted to a width."""

import io
import json
from collections.abc import Callable, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from sleeper.clock import iso_time
from sleeper.query.printable import format_cell
from sleeper.reports.output import Column, ColumnKind, Listing, Value

NUMERIC = {ColumnKind.COUNT, ColumnKind.BYTES, ColumnKind.SECONDS, ColumnKind.DOLLARS}
"""The kinds of columns that are aligned to the right."""
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_CELL_WIDTH_MAX = 100
_GAP = 2
_DATE_LENGTH = len("2026-01-31")
# A narrow terminal wraps longer words, such as ids.
_UNBROKEN_LENGTH_MAX = 12


def format_table(listing: Listing, width: int) -> str:
    """Returns the rows under their headings, or one line per value if the table is too wide.

    Omits columns without a value in any row. Times are in UTC, to the second.
    """
    columns = [
        (column, [format_value(column, row[i], _format_text) for row in listing.rows])
        for i, column in enumerate(listing.columns)
    ]
    columns = [(column, texts) for column, texts in columns if any(texts)]
    widths = _fit_widths(columns, width)
    return _format_records(columns) if widths is None else _format_columns(columns, widths)


def _fit_widths(columns: Sequence[tuple[Column, list[str]]], width: int) -> list[int] | None:
    """Returns column widths that fit into `width`, or None if none do."""
    widths = [max(map(cell_len, [c.heading, *texts])) for c, texts in columns]
    minima = [_width_min(column, texts) for column, texts in columns]
    excess = sum(widths) + _GAP * (len(columns) - 1) - width
    while excess > 0:
        reducible = [i for i, w in enumerate(widths) if w > minima[i]]
        if not reducible:
            return None
        widths[max(reducible, key=widths.__getitem__)] -= 1
        excess -= 1
    return widths


def _width_min(column: Column, texts: list[str]) -> int:
    """Returns the width that keeps numbers, dates and short words on one line."""
    longest, heading = max(map(cell_len, texts)), max(map(cell_len, column.heading.split()))
    if column.kind in NUMERIC:
        return max(longest, heading)
    unbroken = _DATE_LENGTH if column.kind is ColumnKind.TIME else _UNBROKEN_LENGTH_MAX
    return max(min(longest, unbroken), heading)


def _format_columns(columns: Sequence[tuple[Column, list[str]]], widths: Sequence[int]) -> str:
    # rich adds a space between columns to the padding of one, so the gap is two.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for (column, _), width in zip(columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.kind in NUMERIC else "left"
        table.add_column(column.heading, justify=justify, overflow="fold", width=width)
    for row in zip(*(texts for _, texts in columns), strict=True):
        table.add_row(*(Text(text) for text in row))
    buffer = io.StringIO()
    total = sum(widths) + _GAP * len(widths)
    Console(file=buffer, width=total, no_color=True, highlight=False).print(table)
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


def _format_records(columns: Sequence[tuple[Column, list[str]]]) -> str:
    """Returns one line per value, with an empty line between rows."""
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


def format_value(column: Column, value: Value, format_text: Callable[[str], str]) -> str:
    """Returns a value of a column as text. `format_text` takes what is text already."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return format_text(value.rpartition("/")[2] if column.kind is ColumnKind.PATH else value)
    if isinstance(value, Mapping):
        return format_text(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Sequence):
        return format_text(", ".join(str(each) for each in value))
    match column.kind:
        case ColumnKind.TIME:
            return iso_time(int(value))[:19].replace("T", " ")
        case ColumnKind.BYTES:
            return format_bytes(value)
        case ColumnKind.SECONDS:
            return f"{value:,.1f}"
        case ColumnKind.DOLLARS:
            return f"{value:,.2f}"
        case _:
            return f"{value:,.0f}"


def _format_text(text: str) -> str:
    return format_cell(text, _CELL_WIDTH_MAX)


def format_bytes(count: float) -> str:
    """Returns the size with its unit, such as `1.5 MiB`."""
    power = 0
    while count >= 1024 and power < len(_BYTE_UNITS) - 1:
        count /= 1024
        power += 1
    return f"{count:,.{min(power, 1)}f} {_BYTE_UNITS[power]}"
