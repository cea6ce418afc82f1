"""The remaining time of a Lambda function. A timeout fails all messages of its batch."""

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_MARGIN = 0.1
_context: ContextVar[Any] = ContextVar("lambda_context", default=None)


@contextlib.contextmanager
def lambda_context(context: Any) -> Iterator[None]:
    """Reads the remaining time from Lambda's context within the block."""
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


def seconds_left() -> float:
    """Returns the seconds until the running function is killed; infinite outside of Lambda."""
    remaining = getattr(_context.get(), "get_remaining_time_in_millis", None)
    return math.inf if remaining is None else float(remaining()) / 1000


class MessageTimer:
    """Decides whether a function has time for another message.

    A message needs the longest time of any message so far, and at least a tenth of the time that
    remained at first.
    """

    def __init__(self) -> None:
        first = seconds_left()
        self._needed = 0.0 if math.isinf(first) else first * _MARGIN

    def has_time(self) -> bool:
        """Returns whether the remaining time is enough for a message."""
        return seconds_left() > self._needed

    @contextlib.contextmanager
    def message(self) -> Iterator[None]:
        """Measures the time of a message."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._needed = max(self._needed, time.monotonic() - begin)
