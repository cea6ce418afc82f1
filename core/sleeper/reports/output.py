"""Listings, and their output as text tables fitted to a width or as JSON lines."""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from shutil import get_terminal_size
from typing import Any, Self, TextIO, Union

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from sleeper.clock import iso_time
from sleeper.query.printable import format_cell, printable

Value = Union[str, int, float, bool, None, Sequence["Value"], Mapping[str, "Value"]]  # noqa: UP007
"""A JSON value."""


class ReportKind(StrEnum):
    """Names of the reports."""

    TABLES = "tables"
    FILES = "files"
    PARTITIONS = "partitions"
    STATE = "state"
    INGEST_JOBS = "ingest-jobs"
    BULK_IMPORT_JOBS = "bulk-import-jobs"
    BULK_EXPORT_JOBS = "bulk-export-jobs"
    COMPACTION_JOBS = "compaction-jobs"
    TASKS = "tasks"
    QUERIES = "queries"
    QUEUES = "queues"
    DEAD_LETTERS = "dead-letters"
    ALL = "all"


class ColumnKind(Enum):
    """The format of a column's values in text output."""

    TEXT = "text"
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    TIME = "time"
    """Milliseconds since the epoch."""
    PATH = "path"
    """Text output has the file name only; JSON output has the whole path."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its JSON member, its heading in text output, and its value.

    `value` takes the object that a row describes. By default it is the attribute `name`.
    """

    name: str
    heading: str
    kind: ColumnKind = ColumnKind.TEXT
    value: Callable[[Any], Value] | None = None

    def read(self, item: object) -> Value:
        """Returns the column's value of an object."""
        value: Value = getattr(item, self.name) if self.value is None else self.value(item)
        return value


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with a value or None per column.

    Text output only: `summary` is the first line, `drawing` has lines that replace the rows, and
    `note` describes omitted rows.
    """

    name: str
    summary: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    drawing: tuple[str, ...] = ()
    note: str | None = None

    @classmethod
    def describe(
        cls,
        name: str,
        summary: str,
        columns: tuple[Column, ...],
        items: Iterable[object],
        note: str | None = None,
    ) -> Self:
        """Returns a listing with a row per object."""
        rows = tuple(tuple(column.read(item) for column in columns) for item in items)
        return cls(name, summary, columns, rows, note=note)


def pluralize(number: int, noun: str, plural: str | None = None) -> str:
    """Returns the number with its noun, such as `1 table` or `2 tables`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def summarize(number: str, counts: Mapping[str, int]) -> str:
    """Returns the number with the counts that are not 0, such as `3 jobs: 1 failed, 2 running`."""
    parts = ", ".join(f"{count:,} {noun}" for noun, count in counts.items() if count)
    return f"{number}: {parts}" if parts else number


def describe_omission(total: int, shown: int, noun: str) -> str | None:
    """Returns a note on the rows that a limit omitted, or None if it omitted none."""
    return f"{pluralize(total - shown, 'more ' + noun)}: see --limit" if total > shown else None


Output = Callable[[Listing, TextIO], None]
"""Writes one listing."""
_WIDTH_WITHOUT_TERMINAL = 1000


def write_text(listing: Listing, stream: TextIO) -> None:
    """Writes the summary, the drawing or table, and the note; a table fits the terminal."""
    stream.write(f"{printable(listing.summary)}\n")
    if listing.drawing:
        stream.writelines(f"{printable(line)}\n" for line in listing.drawing)
    elif listing.rows:
        width = get_terminal_size().columns if stream.isatty() else _WIDTH_WITHOUT_TERMINAL
        stream.write(format_table(listing, width))
    if listing.note:
        stream.write(f"({printable(listing.note)})\n")


def write_json(listing: Listing, stream: TextIO) -> None:
    """Writes one JSON object per row; `report` names the listing. Times are ISO 8601 in UTC."""
    for members in json_rows(listing):
        stream.write(json.dumps({"report": listing.name, **members}, ensure_ascii=False) + "\n")


def json_rows(listing: Listing) -> Iterator[dict[str, Value]]:
    """Returns each row as JSON members by column name."""
    for row in listing.rows:
        yield {
            column.name: iso_time(value)
            if column.kind is ColumnKind.TIME and isinstance(value, int)
            else value
            for column, value in zip(listing.columns, row, strict=True)
        }


OUTPUTS: dict[str, Output] = {"text": write_text, "json": write_json}
"""Writers by their names on the command line."""


_NUMERIC = {ColumnKind.COUNT, ColumnKind.BYTES, ColumnKind.SECONDS}
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
        (column, [_format_value(column, row[i]) for row in listing.rows])
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
    if column.kind in _NUMERIC:
        return max(longest, heading)
    unbroken = _DATE_LENGTH if column.kind is ColumnKind.TIME else _UNBROKEN_LENGTH_MAX
    return max(min(longest, unbroken), heading)


def _format_columns(columns: Sequence[tuple[Column, list[str]]], widths: Sequence[int]) -> str:
    # rich adds a space between columns to the padding of one, so the gap is two.
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


def _format_value(column: Column, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _format_text(value.rpartition("/")[2] if column.kind is ColumnKind.PATH else value)
    if isinstance(value, Mapping):
        return _format_text(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Sequence):
        return _format_text(", ".join(str(each) for each in value))
    match column.kind:
        case ColumnKind.TIME:
            return iso_time(int(value))[:19].replace("T", " ")
        case ColumnKind.BYTES:
            return _format_bytes(value)
        case ColumnKind.SECONDS:
            return f"{value:,.1f}"
        case _:
            return f"{value:,.0f}"


def _format_text(text: str) -> str:
    return format_cell(text, _CELL_WIDTH_MAX)


def _format_bytes(count: float) -> str:
    power = 0
    while count >= 1024 and power < len(_BYTE_UNITS) - 1:
        count /= 1024
        power += 1
    return f"{count:,.{min(power, 1)}f} {_BYTE_UNITS[power]}"
