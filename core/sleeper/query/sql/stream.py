"""Interruptible reading of the engine's batches.

The engine's own stream blocks in native code, which neither Ctrl-C nor a time limit can
interrupt. So an event loop in another thread awaits the batches, and the caller waits for that
thread. A cancelled plan and its memory are freed when the engine next yields, which is every few
batches.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
from datafusion import RecordBatch, RecordBatchStream

from sleeper.query.result import TimeLimit


def read_stream(stream: RecordBatchStream, limit: TimeLimit) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a stream. InvalidRequestError if the limit is exceeded."""
    while (batch := _next(stream, limit)) is not None:
        yield batch.to_pyarrow()


def _next(stream: RecordBatchStream, limit: TimeLimit) -> RecordBatch | None:
    limit.check()
    waiting = asyncio.run_coroutine_threadsafe(_next_or_none(stream), _event_loop())
    try:
        while True:
            done, _ = concurrent.futures.wait([waiting], limit.seconds_until_check)
            if done:
                return waiting.result()
            limit.check()
    except BaseException:
        waiting.cancel()
        raise


async def _next_or_none(stream: RecordBatchStream) -> RecordBatch | None:
    try:
        return await anext(stream)
    except StopAsyncIteration:
        # A future cannot raise StopAsyncIteration.
        return None


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Returns the process's loop, which never ends, because cancelled plans end on it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="query-batches", daemon=True).start()
    return loop
