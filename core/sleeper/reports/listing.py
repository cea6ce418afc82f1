"""A listing: what a report says, whichever way it is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Union

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
