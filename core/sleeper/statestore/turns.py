"""Turns of threads that write to different databases.

SQLite releases the interpreter's lock at each statement. So ten threads that fold at the same time
spend a third of their processor time on switches, which threads that take turns do not.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lets one thread work at a time, except for threads that wait for a request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for the thread's turn, which lasts until the end of the block."""
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Gives the turn of this thread to others during the block. Without one it does nothing."""
        if self._owner != threading.get_ident():
            yield
            return
        self._owner = None
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()
            self._owner = threading.get_ident()
