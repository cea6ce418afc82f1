"""The version of a table that a read selects: a transaction number, or a point in time."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sleeper.clock import Clock, parse_duration, system_clock
from sleeper.errors import InvalidRequestError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER_MAX = 2**63 - 1
_DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class PointInTime:
    """Selects the version after the last transaction at or before a time.

    `text` is the time as the user wrote it, for errors.
    """

    time_ms: int
    text: str


Version = int | PointInTime


def parse_version(value: object, clock: Clock = system_clock) -> Version:
    """Returns the version that a number, a `datetime`, a time or an age selects.

    A time is ISO 8601 text, UTC without a zone. An age is a number with the unit s, m, h, d or w.
    InvalidRequestError names another value.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _NUMBER_MAX:
        return value
    if isinstance(value, datetime):
        return _point_in_time(value, value.isoformat())
    point = _parse_time(value, clock) if isinstance(value, str) else None
    if point is None:
        raise InvalidRequestError(
            f"as of {value!r:.200}: expected a transaction number of 1 or more, a time such as "
            "2026-01-31T12:00:00Z, or an age such as 2h"
        )
    return point


def parse_version_text(text: str, clock: Clock = system_clock) -> Version:
    """Returns the version that an option selects: digits are a transaction number."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return parse_version(int(text) if is_number else text, clock)


def _parse_time(text: str, clock: Clock) -> PointInTime | None:
    age_ms = parse_duration(text)
    if age_ms is not None:
        return PointInTime(clock() - age_ms, text)
    if text.isdigit():
        return None  # a number as text, not a date without separators
    try:
        return _point_in_time(datetime.fromisoformat(text), text)
    except ValueError:
        return None


def _point_in_time(moment: datetime, text: str) -> PointInTime:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return PointInTime((aware - _EPOCH) // timedelta(milliseconds=1), text)
