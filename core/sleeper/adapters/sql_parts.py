"""Parts of a table that connections read in parallel.

Parts are divided by values of one column. The first part also has the rows below the lower bound
and those without a value, the last part also those above the upper bound. So every row is in
exactly one part: wrong bounds make the parts unequal, but lose no row.
"""

import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from sleeper.databases.columns import PART_COLUMN, ColumnKind, DatabaseColumn
from sleeper.errors import InvalidRequestError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
Bounds = tuple[str | None, str | None]
"""The smallest and the largest value of a column, as texts of SQL values."""


def plan_parts(
    column: DatabaseColumn, given: Bounds, actual: Bounds, parts: int, where: str
) -> tuple[str, ...]:
    """Returns a condition for each part, none if there is only one.

    Bounds that the user has not given are those of the values that the table has, if any.
    InvalidRequestError if one is not a value of the column.
    """
    lower, upper = (each or other for each, other in zip(given, actual, strict=True))
    if lower is None or upper is None:
        return ()
    low, high = (_parse(column, text, where) for text in (lower, upper))
    if low > high:
        if None in given:
            return ()  # all values are on one side of the given bound
        raise InvalidRequestError(
            f"{where}: the lower bound {lower} of partition column {column.name!r} is above the "
            f"upper bound {upper}"
        )
    borders = [low + (high - low + 1) * number // parts for number in range(1, parts)]
    literals = [_literal(column, border) for border in dict.fromkeys(borders) if border > low]
    if not literals:
        return ()
    first = f"{PART_COLUMN} < {literals[0]} OR {PART_COLUMN} IS NULL"
    between = [
        f"{PART_COLUMN} >= {start} AND {PART_COLUMN} < {end}"
        for start, end in itertools.pairwise(literals)
    ]
    return (first, *between, f"{PART_COLUMN} >= {literals[-1]}")


def _parse(column: DatabaseColumn, text: str, where: str) -> int:
    """Returns the value as a whole number of the column's units, rounded down."""
    try:
        return _PARSERS[column.kind](text.strip())
    except (ValueError, OverflowError, InvalidOperation):
        raise InvalidRequestError(
            f"{where}: the bound {text!r} is not a value of partition column {column.name!r}, "
            f"which has the type {column.type_name}"
        ) from None


def _literal(column: DatabaseColumn, value: int) -> str:
    match column.kind:
        case ColumnKind.DATE:
            return f"DATE '{date.fromordinal(value)}'"
        case ColumnKind.TIMESTAMP:
            at = _EPOCH + value * _MICROSECOND
            return f"TIMESTAMP '{at.replace(tzinfo=None).isoformat(sep=' ')}'"
        case _:
            return str(value)


def _parse_time(text: str) -> int:
    at = datetime.fromisoformat(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


_PARSERS: dict[ColumnKind, Callable[[str], int]] = {
    ColumnKind.INTEGER: int,
    ColumnKind.DECIMAL: lambda text: int(Decimal(text) // 1),
    ColumnKind.DATE: lambda text: date.fromisoformat(text).toordinal(),
    ColumnKind.TIMESTAMP: _parse_time,
}
