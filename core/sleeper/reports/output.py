"""Listings, and their output as text or as JSON lines."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from shutil import get_terminal_size
from typing import Any, Self, TextIO, Union

from sleeper.clock import iso_time
from sleeper.query.printable import printable
from sleeper.systems import missing_members, reports_after

Value = Union[str, int, float, bool, None, Sequence["Value"], Mapping[str, "Value"]]  # noqa: UP007
"""A JSON value."""


class ReportKind(StrEnum):
    """Names of the reports: those of the core, and those that systems declare."""

    TABLES = "tables"
    FILES = "files"
    PARTITIONS = "partitions"
    STATE = "state"
    INGEST_JOBS = "ingest-jobs"
    BULK_IMPORT_JOBS = "bulk-import-jobs"
    BULK_EXPORT_JOBS = "bulk-export-jobs"
    INGEST_BATCHER = "ingest-batcher"
    COMPACTION_JOBS = "compaction-jobs"
    DELETION_JOBS = "deletion-jobs"
    vars().update(missing_members(vars(), reports_after("deletion-jobs")))
    TASKS = "tasks"
    QUERIES = "queries"
    QUEUES = "queues"
    vars().update(missing_members(vars(), reports_after("queues")))
    DEAD_LETTERS = "dead-letters"
    COSTS = "costs"
    ALL = "all"


REPORTS_OF_ALL = tuple(
    each for each in ReportKind if each not in (ReportKind.ALL, ReportKind.COSTS)
)
"""The reports in `all`. That on costs has a price itself, and needs more permissions."""


class ColumnKind(Enum):
    """The format of a column's values in text output."""

    TEXT = "text"
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    DOLLARS = "dollars"
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
        # Functions declare listings and have no rich.
        from sleeper.reports.text_table import format_table

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
