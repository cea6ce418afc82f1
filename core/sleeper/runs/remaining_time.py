"""The time that a function on AWS has left. A timeout fails all messages of its batch."""

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_MARGIN = 0.1
_context: ContextVar[Any] = ContextVar("lambda_context", default=None)


@contextlib.contextmanager
def timed_by(context: Any) -> Iterator[None]:
    """Takes the remaining time from Lambda's context while the function runs."""
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
    """Decides whether a function has the time for another message.

    It needs as much as the longest message took, and at least a tenth of what the function had
    left at first.
    """

    def __init__(self) -> None:
        first = seconds_left()
        self._needed = 0.0 if math.isinf(first) else first * _MARGIN

    def has_time(self) -> bool:
        return seconds_left() > self._needed

    @contextlib.contextmanager
    def message(self) -> Iterator[None]:
        """Measures one message."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._needed = max(self._needed, time.monotonic() - begin)
