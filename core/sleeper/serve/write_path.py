"""Answers posts of few rows before the routes, whose objects take longer than the answer.

It takes a request that is whole, small and ordinary. The application answers all others.
"""

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from sleeper.ingest.small_rows import Content
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.serve.access import TableAccess
from sleeper.serve.bodies import problem_response
from sleeper.serve.row_writers import RowWriters
from sleeper.serve.row_writes import encode_written, find_content_type, read_request_id
from sleeper.serve.small_bodies import (
    find_posted_table,
    is_small,
    join_body,
    read_small_body,
    replay,
)

SMALL_BYTES_MAX = 64 * 1024
_SUFFIX = "/rows"
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_JSON = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class WritePath:
    """Middleware that writes the rows of requests of at most `bytes_max` bytes by `writers`."""

    application: ASGIApp
    writers: RowWriters
    bytes_max: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = find_posted_table(scope, _SUFFIX)
        if name is None or not is_small(scope, self.bytes_max):
            await self.application(scope, receive, send)
            return
        kind = find_content_type(scope)
        messages = await read_small_body(receive, self.bytes_max)
        data = join_body(messages)
        if kind is None or data is None:
            await self.application(scope, replay(messages, receive), send)
            return
        access = TableAccess(name, LOCAL_SENDER)
        try:
            future = self.writers.submit(access, Content(kind, data), read_request_id(scope))
            body = encode_written(await asyncio.wrap_future(future))
        except Exception as error:
            response = problem_response(error)
            response.headers["X-Content-Type-Options"] = "nosniff"
            await response(scope, receive, send)
            return
        length = (b"content-length", str(len(body)).encode())
        headers = [_JSON, length, _NO_SNIFFING]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
