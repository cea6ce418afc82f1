"""Batches of a running plan, such that whoever waits for one can be interrupted or give up.

The engine's own stream blocks in native code, where neither Ctrl-C nor a time limit
reaches. So batches are awaited on an event loop in a thread of its own, and the caller
waits for that. What is given up is cancelled: the engine drops the plan with all its
memory when it next comes up for air, which it does every few batches.
"""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from datafusion import RecordBatch, RecordBatchStream

from sleeper.errors import InvalidRequestError
from sleeper.properties.engine import QUERY_SECONDS_MAX

_STOP_CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When a query must have ended; `seconds` 0 is never. `set_by` names what says so.

    Whoever gives up waiting for rows sets `stopped`.
    """

    seconds: int = 0
    begun: float = 0.0
    set_by: str = QUERY_SECONDS_MAX.name
    stopped: threading.Event | None = None

    @classmethod
    def from_now(cls, seconds: int) -> "TimeLimit":
        return cls(seconds, time.monotonic())

    @property
    def seconds_left(self) -> float | None:
        """None if there is no limit."""
        if not self.seconds:
            return None
        return max(0.0, self.begun + self.seconds - time.monotonic())

    @property
    def seconds_until_check(self) -> float | None:
        """For how long nothing needs to be looked at."""
        left = self.seconds_left
        if self.stopped is None:
            return left
        return _STOP_CHECK_SECONDS if left is None else min(left, _STOP_CHECK_SECONDS)

    def check(self) -> None:
        """InvalidRequestError if time is up, or the query was stopped."""
        if self.stopped is not None and self.stopped.is_set():
            raise InvalidRequestError("the query was stopped: nobody waits for its rows")
        if self.seconds_left == 0.0:
            raise InvalidRequestError(self.reason())

    def reason(self) -> str:
        """Why a query is ended whose time is up."""
        return f"the query takes more than {self.seconds} s, which {self.set_by} does not allow"


def read_stream(stream: RecordBatchStream, limit: TimeLimit) -> Iterator[pa.RecordBatch]:
    """The stream's batches. InvalidRequestError if time is up before its end."""
    while (batch := _next(stream, limit)) is not None:
        yield batch.to_pyarrow()


def _next(stream: RecordBatchStream, limit: TimeLimit) -> RecordBatch | None:
    limit.check()
    waiting = asyncio.run_coroutine_threadsafe(_awaited(stream), _event_loop())
    try:
        while True:
            done, _ = concurrent.futures.wait([waiting], limit.seconds_until_check)
            if done:
                return waiting.result()
            limit.check()
    except BaseException:
        waiting.cancel()
        raise


async def _awaited(stream: RecordBatchStream) -> RecordBatch | None:
    try:
        return await anext(stream)
    except StopAsyncIteration:
        # A future cannot hold it.
        return None


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """One for the process, which never ends: an engine that is late must find it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="query-batches", daemon=True).start()
    return loop
