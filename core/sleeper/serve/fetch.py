"""The rows of one query, piece by piece, by threads that only work when they are asked to."""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import anyio
import pyarrow as pa
from anyio import to_thread

from sleeper.errors import UnavailableError
from sleeper.query.interruption import TimeLimit
from sleeper.serve.terms import Terms

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


class RowStream(Protocol):
    """The rows of a query: a `QueryResult`, or what stands for one."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


OpenRows = Callable[[TimeLimit], RowStream]
"""Starts a query, which has ended when the limit says so."""
OpenStatement = Callable[[str, TimeLimit, str, Any], RowStream]
"""Starts a statement for a caller, as of what a request's `asOf` says."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes of a server share."""

    slots: QuerySlots
    terms: Terms
    open_statement: OpenStatement


@dataclass(slots=True)
class Fetching(Generic[T]):
    """A query in a slot. `cut` makes pieces of its rows.

    Pieces are fetched for as long as they are small, so that a small result takes one turn
    of a thread.
    """

    service: Service
    open_rows: OpenRows
    cut: Callable[[RowStream], Iterator[T]]
    limit: TimeLimit = field(init=False)
    _result: RowStream | None = None
    _pieces: Iterator[T] | None = None

    def __post_init__(self) -> None:
        terms = self.service.terms
        self.limit = TimeLimit(
            terms.seconds_max, time.monotonic(), terms.seconds_set_by, threading.Event()
        )

    def stop(self) -> None:
        """Makes a running piece of work end soon, wherever it is."""
        assert self.limit.stopped is not None
        self.limit.stopped.set()

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Holds a slot, and closes the query at its end. The time counts from the slot on."""
        async with self.service.slots.taken():
            self.limit = replace(self.limit, begun=time.monotonic())
            try:
                yield
            finally:
                self.stop()
                with anyio.CancelScope(shield=True):
                    await self.service.slots.run(self._close)

    async def fetch(self, enough: Callable[[list[T]], bool]) -> tuple[list[T], bool]:
        """The next pieces, until there are enough of them; and whether they are the last."""
        return await self.service.slots.run(partial(self._fetch, enough))

    def _fetch(self, enough: Callable[[list[T]], bool]) -> tuple[list[T], bool]:
        self.limit.check()
        if self._pieces is None:
            self._result = self.open_rows(self.limit)
            self._pieces = self.cut(self._result)
        pieces: list[T] = []
        for piece in self._pieces:
            pieces.append(piece)
            if enough(pieces):
                return pieces, False
        return pieces, True

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            if self._result is not None:
                self._result.close()
