"""Programs that put their things in order when they are ended."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that workers are stopped and not left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
