"""Answers lookups and posts of few rows before the routes, whose objects take longer.

A request is answered here if it is whole, small and ordinary. The application answers all others,
and lookups that fail, so that both have the same responses.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sleeper.errors import SleeperError
from sleeper.ingest.small_rows import Content
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.serve.access import TableAccess, read_header
from sleeper.serve.bodies import problem_response
from sleeper.serve.lookups import Lookup, LookupRuns
from sleeper.serve.row_answer import ARROW_STREAM, JSON_LINES, RowFormat
from sleeper.serve.row_writers import RowWriters
from sleeper.serve.row_writes import encode_written, find_content_type, read_request_id
from sleeper.serve.rows import parse_query

_BODY_SECONDS_MAX = 30
_LOOKUP_BYTES_MAX = 16 * 1024
WRITE_BYTES_MAX = 64 * 1024
_FORMATS = {"": JSON_LINES, "*/*": JSON_LINES} | {
    form.media_type: form for form in (JSON_LINES, ARROW_STREAM)
}
_OTHER_MEMBERS = ("ranges", "regions", "asOf", "iterator", "iteratorConfig")
_Respond = Callable[[bytes], Awaitable[ASGIApp | None]]
"""Returns the response to a body; None if the request is for the application."""


@dataclass(frozen=True, slots=True)
class SmallRequests:
    """Middleware that answers lookups, and writes of at most `write_bytes_max` bytes.

    A read-only server has no `writers`.
    """

    application: ASGIApp
    lookups: LookupRuns
    writers: RowWriters | None
    write_bytes_max: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        respond, bytes_max = self._choose(scope)
        if respond is None or not _is_small(scope, bytes_max):
            await self.application(scope, receive, send)
            return
        messages = await _read_body(receive, bytes_max)
        body = _join_body(messages)
        response = None if body is None else await respond(body)
        if response is None:
            response, receive = self.application, _replay(messages, receive)
        await response(scope, receive, send)

    def _choose(self, scope: Scope) -> tuple[_Respond | None, int]:
        """Returns how to respond to the request, and the maximum size of its body."""
        name, operation = _find_posted_table(scope)
        access = TableAccess(name, LOCAL_SENDER)
        if operation == "query" and read_header(scope, b"content-type") == "application/json":
            form = _FORMATS.get(read_header(scope, b"accept"))
            if form is not None:
                return partial(self._look_up, access, form), _LOOKUP_BYTES_MAX
        if operation == "rows" and self.writers is not None:
            return partial(self._write, access, scope, self.writers), self.write_bytes_max
        return None, 0

    async def _look_up(self, access: TableAccess, form: RowFormat, body: bytes) -> ASGIApp | None:
        try:
            raw = json.loads(body)
        except (ValueError, RecursionError):
            return None
        # Keys of the newest version only.
        if not isinstance(raw, dict) or not raw.get("keys") or any(map(raw.get, _OTHER_MEMBERS)):
            return None
        rows = None
        with suppress(SleeperError):  # The application responds with the error.
            rows = await self.lookups.answer(access, Lookup(partial(parse_query, raw=raw), form))
        return None if rows is None else partial(_send, form.media_type, rows)

    async def _write(
        self, access: TableAccess, scope: Scope, writers: RowWriters, body: bytes
    ) -> ASGIApp | None:
        kind = find_content_type(scope)
        if kind is None:
            return None
        try:
            future = writers.submit(access, Content(kind, body), read_request_id(scope))
            written = encode_written(await asyncio.wrap_future(future))
        except Exception as error:
            response = problem_response(error)
            response.headers["X-Content-Type-Options"] = "nosniff"
            return response
        return partial(_send, "application/json", written)


async def _send(media_type: str, body: bytes, _scope: Scope, _receive: Receive, send: Send) -> None:
    headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _find_posted_table(scope: Scope) -> tuple[str, str]:
    """Returns the table of a POST over HTTP, and the path below it; empty texts otherwise."""
    if scope["type"] != "http" or scope["method"] != "POST" or "aws.event" in scope:
        return "", ""
    empty, tables, *names = scope["path"].split("/")
    is_operation = (empty, tables, len(names)) == ("", "tables", 2)
    return (names[0], names[1]) if is_operation and names[0] else ("", "")


def _is_small(scope: Scope, bytes_max: int) -> bool:
    """Returns whether the request says that its body has at most so many bytes."""
    length = read_header(scope, b"content-length")
    return length.isascii() and length.isdigit() and int(length[:9]) <= bytes_max


async def _read_body(receive: Receive, bytes_max: int) -> list[Message]:
    """Returns the messages of the body, or the first of them if they are late or large."""
    messages: list[Message] = []
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_BODY_SECONDS_MAX):
            while size <= bytes_max:
                messages.append(await receive())
                size += len(messages[-1].get("body", b""))
                if not messages[-1].get("more_body"):
                    break
    return messages


def _join_body(messages: Sequence[Message]) -> bytes | None:
    """Returns the body; `None` if the messages are not all of it."""
    if not messages or messages[-1]["type"] != "http.request" or messages[-1].get("more_body"):
        return None
    return b"".join(each.get("body", b"") for each in messages)


def _replay(messages: Sequence[Message], receive: Receive) -> Receive:
    """Returns a function that receives the messages again, and then further ones."""
    received = list(reversed(messages))

    async def receive_next() -> Message:
        return received.pop() if received else await receive()

    return receive_next
