"""A listing: what a report says, whichever way it is written."""

from dataclasses import dataclass
from enum import Enum

Value = str | int | float | bool | None


class ColumnKind(Enum):
    """How a person reads a column's values."""

    TEXT = "text"
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    TIME = "time"
    """Milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its JSON member, and what stands over it in text."""

    name: str
    heading: str
    kind: ColumnKind = ColumnKind.TEXT


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with a value, or None, for each column. `summary` is for people."""

    name: str
    summary: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Such as `1 table` and `2 tables`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
