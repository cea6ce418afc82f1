"""The state that the endpoints of a server share: limits, query slots, and row fetchers.

A query holds a slot from its start to its last row. A thread fetches its rows one piece at a
time, after the client has received the piece before, so memory is bounded for slow clients.
"""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import anyio
import pyarrow as pa
from anyio import to_thread
from starlette.exceptions import HTTPException

from sleeper.datafiles.sources.budget import RowLimits
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.properties.instance import (
    QUERY_SECONDS_MAX,
    SERVE_BODY_BYTES_MAX,
    SERVE_CONNECTIONS_MAX,
    SERVE_HEADER_SECONDS_MAX,
    SERVE_QUERIES_MAX,
    SERVE_READ_SECONDS_MAX,
    SERVE_ROWS_BYTES_MAX,
    SERVE_ROWS_DECODED_BYTES_MAX,
    SERVE_ROWS_MEMORY_BYTES_MAX,
    SERVE_SECONDS_MAX,
    SERVE_WAITING_MAX,
)
from sleeper.query.result import TimeLimit
from sleeper.serve.row_writers import RowWriters

T = TypeVar("T")
# Large bodies on the local disk, each an ingest.
_LARGE_WRITES_MAX = 4
# The time for a client to read a piece of a response while other queries wait for a slot.
_SEND_SECONDS_WHILE_WAITING = 2.0


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a server, for all clients together and for each.

    `seconds_property` names the property that limits the time of a query. `answer_bytes_max` is
    `None` for a server that streams responses; otherwise larger responses are refused. A
    WebSocket sends a frame for each query at least every `keep_alive_seconds`. A client must
    read each piece of a response within `read_seconds_max`, and send the headers of a request
    within `header_seconds_max`. A body of rows has at most `rows_bytes_max`, and its rows in
    memory are limited by `rows`.
    """

    queries_max: int = 16
    waiting_max: int = 256
    seconds_max: int = 300
    seconds_property: str = SERVE_SECONDS_MAX.name
    body_bytes_max: int = 1024**2
    answer_bytes_max: int | None = None
    keep_alive_seconds: float = 15.0
    read_seconds_max: float = 30.0
    connections_max: int = 500
    header_seconds_max: float = 10.0
    rows_bytes_max: int = 1024**3
    rows: RowLimits = field(default_factory=RowLimits)


def read_limits(instance: Instance) -> ServerLimits:
    """Returns the limits in the instance's properties."""
    properties = instance.properties()
    limits = [(properties.get(p), p.name) for p in (SERVE_SECONDS_MAX, QUERY_SECONDS_MAX)]
    seconds, name = min((limit for limit in limits if limit[0]), default=limits[0])
    return ServerLimits(
        properties.get(SERVE_QUERIES_MAX),
        properties.get(SERVE_WAITING_MAX),
        seconds,
        name,
        properties.get(SERVE_BODY_BYTES_MAX),
        read_seconds_max=properties.get(SERVE_READ_SECONDS_MAX),
        connections_max=properties.get(SERVE_CONNECTIONS_MAX),
        header_seconds_max=properties.get(SERVE_HEADER_SECONDS_MAX),
        rows_bytes_max=properties.get(SERVE_ROWS_BYTES_MAX),
        rows=RowLimits(
            properties.get(SERVE_ROWS_MEMORY_BYTES_MAX),
            properties.get(SERVE_ROWS_DECODED_BYTES_MAX),
        ),
    )


class RowStream(Protocol):
    """The rows of a query: a `QueryResult`, or the rows of a statement in another process."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


OpenRows = Callable[[TimeLimit], RowStream]
"""Starts a query, which ends when the time limit is exceeded."""
OpenStatement = Callable[[str, TimeLimit, str, Any], RowStream]
"""Starts a SQL statement for a caller, with the `asOf` value of its request."""


class QuerySlots:
    """One thread for each query that may run at once. An object belongs to one event loop."""

    def __init__(self, running_max: int, waiting_max: int) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._waiting = 0
        self._slots = anyio.Semaphore(running_max)
        # The sends of running queries, and when they began.
        self._sends: dict[anyio.CancelScope, float] = {}
        self._threads = anyio.CapacityLimiter(running_max)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Waits for a slot, in order of arrival. UnavailableError if too many queries wait."""
        if self._waiting >= self._waiting_max:
            raise UnavailableError(
                f"{self._running_max} queries run and {self._waiting} wait: try again later"
            )
        self._waiting += 1
        if not self._slots.value:
            for scope, start in self._sends.items():
                scope.deadline = min(scope.deadline, start + _SEND_SECONDS_WHILE_WAITING)
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    @contextmanager
    def limit_send(self, seconds_max: float) -> Iterator[anyio.CancelScope]:
        """Cancels the send of a running query after so long, and sooner if other queries wait.

        A client that reads nothing holds a slot.
        """
        if self._waiting and not self._slots.value:
            seconds_max = min(seconds_max, _SEND_SECONDS_WHILE_WAITING)
        start = anyio.current_time()
        with anyio.CancelScope(deadline=start + seconds_max) as scope:
            self._sends[scope] = start
            try:
                yield scope
            finally:
                del self._sends[scope]

    async def run(self, work: Callable[[], T]) -> T:
        """Runs the work in the thread of a slot. A cancelled call ends after its work."""
        return await to_thread.run_sync(work, limiter=self._threads)


@dataclass(frozen=True, slots=True)
class Service:
    """The state that the endpoints of a server share.

    `read_only_reason` is the reason why the server refuses changes; `None` if it accepts them.
    """

    instance: Instance
    limits: ServerLimits
    slots: QuerySlots
    open_statement: OpenStatement
    writers: RowWriters
    read_only_reason: str | None = None
    large_writes: anyio.Semaphore = field(
        default_factory=lambda: anyio.Semaphore(_LARGE_WRITES_MAX)
    )


def check_writable(service: Service) -> None:
    """Raises an error of status 403 if the server is read-only."""
    if service.read_only_reason is not None:
        raise HTTPException(403, service.read_only_reason)


@dataclass(slots=True)
class RowFetcher(Generic[T]):
    """A query in a slot. `split` cuts its rows into pieces.

    One call of a thread fetches several small pieces, so a small result takes one call.
    """

    service: Service
    open_rows: OpenRows
    split: Callable[[RowStream], Iterator[T]]
    limit: TimeLimit = field(init=False)
    _result: RowStream | None = None
    _pieces: Iterator[T] | None = None

    def __post_init__(self) -> None:
        limits = self.service.limits
        self.limit = TimeLimit(
            limits.seconds_max, time.monotonic(), limits.seconds_property, threading.Event()
        )

    def stop(self) -> None:
        """Makes a running fetch end soon."""
        assert self.limit.stop_event is not None
        self.limit.stop_event.set()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Holds a slot, and closes the query at its end. The time limit starts with the slot."""
        async with self.service.slots.acquire():
            self.limit = replace(self.limit, start_seconds=time.monotonic())
            try:
                yield
            finally:
                self.stop()
                with anyio.CancelScope(shield=True):
                    await self.service.slots.run(self._close)

    async def fetch(self, is_enough: Callable[[list[T]], bool]) -> tuple[list[T], bool]:
        """Returns the next pieces, until they are enough, and whether they are the last."""
        return await self.service.slots.run(partial(self._fetch, is_enough))

    def _fetch(self, is_enough: Callable[[list[T]], bool]) -> tuple[list[T], bool]:
        self.limit.check()
        if self._pieces is None:
            self._result = self.open_rows(self.limit)
            self._pieces = self.split(self._result)
        pieces: list[T] = []
        for piece in self._pieces:
            pieces.append(piece)
            if is_enough(pieces):
                return pieces, False
        return pieces, True

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            if self._result is not None:
                self._result.close()
