"""Detects the delimiter and header of a CSV file in its first lines.

A file that is read into a table has the delimiter with which the most names of its header are
fields. Without a table, or a header, rows of the right delimiter have equal numbers of values, and
a header is a first row whose values are of another type than those below.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sleeper.datafiles.sources.encodings import TextFile
from sleeper.storage.source_options import SourceOptions

SAMPLE_BYTES = 256 * 1024
"""The beginning of a file, from which its dialect is detected."""

_DELIMITERS = (",", ";", "\t", "|")
# Of a file that has rows of equal length by several delimiters, a comma is more often a part of
# a value than any other.
_BY_RARITY = ("\t", "|", ";", ",")
_TAB_ENDINGS = (".tsv", ".tsv.gz", ".tsv.zst")
_ROWS_MAX = 200
_VALUE_KINDS = (
    ("number", re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf|nan", re.IGNORECASE)),
    ("boolean", re.compile(r"true|false", re.IGNORECASE)),
    ("time", re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The delimiter of a CSV file, and the names of its columns.

    `is_renamed` if the names are not those of the first line. `renamed` are pairs of a name in the
    header that no field can have, and its name here. `has_rows` is false for a file that has none.
    `blank_lines` are before its first row.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    is_renamed: bool = False
    renamed: tuple[tuple[str, str], ...] = ()
    has_rows: bool = True
    blank_lines: int = 0


def find_dialect(
    sample: bytes, path: TextFile, options: SourceOptions, fields: Collection[str] | None = None
) -> Dialect:
    """Returns the dialect of a file that begins with `sample`, in UTF-8.

    `fields` are the names of the table's fields, None if there is no table. InvalidRequestError if
    the options name another number of columns than the file has.
    """
    # A character at the end of the sample may be cut.
    text = sample.decode(errors="replace")
    is_cut = len(sample) >= SAMPLE_BYTES
    result = _find_dialect(text, is_cut, _candidates(path, options), options, fields)
    has_rows = is_cut or _has_rows(text, result.delimiter, int(result.has_header))
    blank_lines = len(text[: len(text) - len(text.lstrip("\r\n"))].splitlines())
    return replace(result, has_rows=has_rows, blank_lines=blank_lines)


def _find_dialect(
    text: str,
    is_cut: bool,
    delimiters: Sequence[str],
    options: SourceOptions,
    fields: Collection[str] | None,
) -> Dialect:
    if options.columns:
        return _named_dialect(text, is_cut, delimiters, options)
    if fields is not None and options.header is not False:
        best = max(delimiters, key=partial(_count_fields, text, fields))
        if _count_fields(text, fields, best) or not _has_generated_names(fields):
            names = _first_row(text, best)
            renamed = _unique_names(names)
            changes = {new for old, new in zip(names, renamed, strict=True) if old != new}
            if not changes or not changes <= set(fields):
                return Dialect(best, tuple(names), True)
            return _renamed_dialect(best, names)
    delimiter = _find_delimiter(text, is_cut, delimiters)
    rows = _rows(text, delimiter, is_cut)
    first = rows[0] if rows else []
    has_header = _has_header(rows) if options.header is None else options.header
    if has_header:
        return _renamed_dialect(delimiter, first)
    return Dialect(delimiter, tuple(map(_generated_name, range(len(first)))), False, True)


def _candidates(path: TextFile, options: SourceOptions) -> Sequence[str]:
    if options.delimiter is not None:
        return (options.delimiter,)
    return ("\t",) if path.name.lower().endswith(_TAB_ENDINGS) else _DELIMITERS


def _named_dialect(
    text: str, is_cut: bool, delimiters: Sequence[str], options: SourceOptions
) -> Dialect:
    """Returns a dialect with the names that the options give.

    A first line of just these names is a header, unless the options say that there is none.
    """
    names = options.columns
    fitting = [each for each in delimiters if len(_first_row(text, each)) == len(names)]
    delimiter = _find_delimiter(text, is_cut, fitting or delimiters)
    has_header = options.header
    if has_header is None:
        has_header = _first_row(text, delimiter) == list(names)
    return Dialect(delimiter, names, has_header, True)


def _renamed_dialect(delimiter: str, header: Sequence[str]) -> Dialect:
    names = _unique_names(header)
    renamed = tuple((old, new) for old, new in zip(header, names, strict=True) if old != new)
    return Dialect(delimiter, tuple(names), True, bool(renamed), renamed)


def _generated_name(position: int) -> str:
    return f"column{position}"


def _has_generated_names(fields: Collection[str]) -> bool:
    return _generated_name(0) in fields


def _unique_names(names: Sequence[str]) -> list[str]:
    """Returns the names, of which the empty and repeated ones are replaced."""
    unique: list[str] = []
    counts = Counter(names)
    for index, name in enumerate(names):
        chosen, number = name or _generated_name(index), 1
        while chosen in unique or (chosen != name and chosen in counts):
            chosen, number = f"{name or _generated_name(index)}_{number}", number + 1
        unique.append(chosen)
    return unique


def _count_fields(text: str, fields: Collection[str], delimiter: str) -> int:
    return len(set(_first_row(text, delimiter)) & set(fields))


def _first_row(text: str, delimiter: str) -> list[str]:
    rows = _rows(text, delimiter, is_cut=False, rows_max=1)
    return rows[0] if rows else []


def _rows(text: str, delimiter: str, is_cut: bool, rows_max: int = _ROWS_MAX) -> list[list[str]]:
    """Returns the first rows that are not blank, without one that is cut."""
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) > rows_max:
                return rows[:-1]
    except csv.Error:  # a value that is longer than Python's limit; the reader of rows checks it
        return rows
    return rows[:-1] if is_cut and len(rows) > 1 else rows


def _has_rows(text: str, delimiter: str, header_rows: int) -> bool:
    """Whether rows follow the header."""
    rows = 0
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            rows += bool(row)
            if rows > header_rows:
                return True
    except csv.Error:  # a value that is longer than Python's limit
        return True
    return False


def _find_delimiter(text: str, is_cut: bool, delimiters: Sequence[str]) -> str:
    if len(delimiters) == 1:
        return delimiters[0]

    def regularity(delimiter: str) -> tuple[float, int, int, int]:
        rows = _rows(text, delimiter, is_cut)
        width = len(rows[0]) if rows else 0
        if width < 2:
            return 0.0, 0, 0, -_DELIMITERS.index(delimiter)
        # A few irregular rows are reported when the file is read.
        equal = sum(len(row) == width for row in rows) / len(rows)
        # Quotes remain in values that another delimiter ends.
        quotes = sum(value.count('"') for row in rows for value in row)
        return round(equal, 1), -quotes, width, -_BY_RARITY.index(delimiter)

    return max(delimiters, key=regularity)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns. It does if all columns are text."""
    if not rows:
        return True
    first, body = rows[0], rows[1:]
    kinds = [_common_kind([row[position] for row in body if position < len(row)])
             for position in range(len(first))]  # fmt: skip
    if not body:
        return all(_kind(value) is None for value in first)
    typed = [(value, kind) for value, kind in zip(first, kinds, strict=True) if kind is not None]
    return not typed or any(value and _kind(value) != kind for value, kind in typed)


def _common_kind(values: Sequence[str]) -> str | None:
    kinds = {_kind(value) for value in values if value}
    return kinds.pop() if len(kinds) == 1 else None


def _kind(value: str) -> str | None:
    """Returns the kind of a value that is no plain text."""
    return next((name for name, form in _VALUE_KINDS if form.fullmatch(value.strip())), None)
