"""Answers lookups before the routes, whose objects take longer than the answer.

It takes a request that is whole, small and ordinary. The application answers all others, and those
whose lookup fails, so that both have the same responses.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sleeper.errors import SleeperError
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.serve.access import read_header
from sleeper.serve.lookups import Lookup, LookupRuns, TableAccess
from sleeper.serve.row_answer import ARROW_STREAM, JSON_LINES, RowFormat
from sleeper.serve.rows import parse_query

_BODY_BYTES_MAX = 16 * 1024
_BODY_SECONDS_MAX = 30
_PREFIX, _SUFFIX = "/tables/", "/query"
_FORMATS = {"": JSON_LINES, "*/*": JSON_LINES} | {
    form.media_type: form for form in (JSON_LINES, ARROW_STREAM)
}
_OTHER_MEMBERS = ("ranges", "regions", "asOf", "iterator", "iteratorConfig")
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


@dataclass(frozen=True, slots=True)
class LookupPath:
    """Middleware that answers requests of few keys by `lookups`."""

    application: ASGIApp
    lookups: LookupRuns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, form = _table_name(scope), _row_format(scope)
        if name is None or form is None:
            await self.application(scope, receive, send)
            return
        messages = await _read_body(receive)
        body = None
        if (raw := _lookup_body(messages)) is not None:
            lookup = Lookup(partial(parse_query, raw=raw), form)
            with suppress(SleeperError):  # The application responds with the error.
                body = await self.lookups.answer(TableAccess(name, LOCAL_SENDER), lookup)
        if body is None:
            await self.application(scope, _replay(messages, receive), send)
            return
        length = (b"content-length", str(len(body)).encode())
        headers = [(b"content-type", form.media_type.encode()), length, _NO_SNIFFING]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _table_name(scope: Scope) -> str | None:
    """Returns the table of a query over HTTP; `None` for other requests."""
    if scope["type"] != "http" or scope["method"] != "POST" or "aws.event" in scope:
        return None
    path: str = scope["path"]
    if not path.startswith(_PREFIX) or not path.endswith(_SUFFIX):
        return None
    name = path[len(_PREFIX) : -len(_SUFFIX)]
    return name if name and "/" not in name else None


def _row_format(scope: Scope) -> RowFormat | None:
    """Returns the format of the rows; `None` for a request that is not small and ordinary."""
    length = read_header(scope, b"content-length")
    is_small = length.isascii() and length.isdigit() and int(length[:9]) <= _BODY_BYTES_MAX
    if not is_small or read_header(scope, b"content-type") != "application/json":
        return None
    return _FORMATS.get(read_header(scope, b"accept"))


async def _read_body(receive: Receive) -> list[Message]:
    """Returns the messages of the body, or the first of them if they are late or large."""
    messages: list[Message] = []
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_BODY_SECONDS_MAX):
            while size <= _BODY_BYTES_MAX:
                messages.append(await receive())
                size += len(messages[-1].get("body", b""))
                if not messages[-1].get("more_body"):
                    break
    return messages


def _lookup_body(messages: Sequence[Message]) -> Mapping[str, Any] | None:
    """Returns a whole `Query` body that selects keys of the newest version only."""
    if not messages or messages[-1]["type"] != "http.request" or messages[-1].get("more_body"):
        return None
    try:
        raw = json.loads(b"".join(each.get("body", b"") for each in messages))
    except (ValueError, RecursionError):
        return None
    is_lookup = isinstance(raw, dict) and raw.get("keys") and not any(map(raw.get, _OTHER_MEMBERS))
    return raw if is_lookup else None


def _replay(messages: Sequence[Message], receive: Receive) -> Receive:
    """Returns a function that receives the messages again, and then further ones."""
    left = list(reversed(messages))

    async def receive_next() -> Message:
        return left.pop() if left else await receive()

    return receive_next
