"""Time in whole milliseconds since the epoch, UTC.

A clock is a callable, so tests can replace it.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]


def system_clock() -> int:
    """Returns the wall-clock time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def iso_time(milliseconds: int) -> str:
    """Returns ISO 8601 text in UTC with milliseconds, such as `2026-01-31T12:00:00.000Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")
_UNIT_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}


def parse_duration(text: str) -> int | None:
    """Returns the milliseconds of a number with the unit s, m, h, d or w; None for other text."""
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_MS[match[2]]


def format_duration(milliseconds: int) -> str:
    """Returns the text of whole seconds, in the largest unit up to days without a rest."""
    unit = next(u for u in "dhms" if milliseconds % _UNIT_MS[u] == 0)
    return f"{milliseconds // _UNIT_MS[unit]}{unit}"
