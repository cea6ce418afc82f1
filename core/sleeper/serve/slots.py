"""Who may run a query now: so many at once, so many waiting, and others are refused."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from anyio import to_thread

from sleeper.errors import UnavailableError

T = TypeVar("T")


class QuerySlots:
    """As many threads as queries may run; an event loop has its own."""

    def __init__(self, running_max: int, waiting_max: int) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._waiting = 0
        self._slots = anyio.Semaphore(running_max)
        self._threads = anyio.CapacityLimiter(running_max)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Waits for a slot, in turn. UnavailableError if too many wait already."""
        if self._waiting >= self._waiting_max:
            raise UnavailableError(
                f"{self._running_max} queries run and {self._waiting} wait: try again later"
            )
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def run(self, work: Callable[[], T]) -> T:
        """Runs the work in a thread; whoever holds a slot has one. Cancelled, it ends first."""
        return await to_thread.run_sync(work, limiter=self._threads)
