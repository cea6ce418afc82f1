"""Separates the invalid lines of a block of JSON lines from the others, in linear time.

Arrow decides which lines are valid. Python's parser guesses first: Arrow parses all lines that are
probably valid at once, and each doubtful line alone. Lines for which the guess is wrong are found
by halving.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sleeper.datafiles.sources.files import Columns
from sleeper.datafiles.sources.json_rows import NOT_ROWS, parse_lines, reason_against
from sleeper.datafiles.text_values import TEXT_IN_JSON
from sleeper.schema.model import Field, FieldType, ListType, MapType, PrimitiveType, Schema

_INTEGERS = frozenset({PrimitiveType.INT, PrimitiveType.LONG})
_TEXTS = TEXT_IN_JSON | {PrimitiveType.STRING}


@dataclass(frozen=True, slots=True)
class InvalidLine:
    """A line that is no row, with its place in the block, from 0."""

    place: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class SeparatedLines:
    """The columns of the rows of a block with the places of their lines, and the other lines.

    Blank lines are in neither.
    """

    columns: Columns
    places: list[int]
    invalid: Sequence[InvalidLine]


def separate_lines(lines: Sequence[bytes], schema: Schema, ignores_extra: bool) -> SeparatedLines:
    """Parses the valid lines of a block, and finds the reasons against the others."""
    fields = {field.name: field for field in schema.fields}
    probable: list[int] = []
    doubtful: list[int] = []
    for index, line in enumerate(lines):
        if line.strip():
            is_probable = _is_probable_row(line, fields, ignores_extra)
            (probable if is_probable else doubtful).append(index)
    invalid: list[InvalidLine] = []
    positions = list(_find_rows(lines, probable, schema, ignores_extra, invalid))
    for index in doubtful:
        positions += _find_rows(lines, [index], schema, ignores_extra, invalid)
    positions.sort()
    columns = parse_lines([lines[i] for i in positions], schema, ignores_extra=ignores_extra)
    return SeparatedLines(columns, positions, sorted(invalid, key=lambda each: each.place))


def _find_rows(
    lines: Sequence[bytes],
    positions: Sequence[int],
    schema: Schema,
    ignores_extra: bool,
    invalid: list[InvalidLine],
) -> Iterator[int]:
    """Yields the places of valid lines among these places, and adds the others to `invalid`."""
    try:
        parse_lines([lines[i] for i in positions], schema, ignores_extra=ignores_extra)
    except NOT_ROWS as error:
        if len(positions) == 1:
            line = lines[positions[0]]
            reason = reason_against(line, schema, error)
            text = line.decode(errors="replace").rstrip("\n")
            invalid.append(InvalidLine(positions[0], reason, text))
            return
        half = len(positions) // 2
        for part in (positions[:half], positions[half:]):
            yield from _find_rows(lines, part, schema, ignores_extra, invalid)
        return
    yield from positions


def _is_probable_row(line: bytes, fields: Mapping[str, Field], ignores_extra: bool) -> bool:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(row, dict) or not (ignores_extra or fields.keys() >= row.keys()):
        return False
    return all(_is_probable_value(row[name], fields[name].type) for name in row if name in fields)


def _is_probable_value(value: Any, kind: FieldType) -> bool:
    if value is None or kind is PrimitiveType.JSON:
        return True
    match kind:
        case ListType():
            return isinstance(value, list)
        case MapType():
            return isinstance(value, dict)
        case PrimitiveType.BOOLEAN:
            return isinstance(value, bool)
        case _ if kind in _TEXTS:
            return isinstance(value, str)
        case _ if kind in _INTEGERS:
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            # Text may name an infinity or have the digits of a decimal.
            return isinstance(value, int | float | str) and not isinstance(value, bool)
