"""Time in whole milliseconds since the epoch, UTC.

A clock is a callable, so tests can replace it.
"""

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
