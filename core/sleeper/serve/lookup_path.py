"""Answers lookups before the routes, whose objects take longer than the answer.

It takes a request that is whole, small and ordinary. The application answers all others, and those
whose lookup fails, so that both have the same responses.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sleeper.errors import SleeperError
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.serve.access import TableAccess, read_header
from sleeper.serve.lookups import Lookup, LookupRuns
from sleeper.serve.row_answer import ARROW_STREAM, JSON_LINES, RowFormat
from sleeper.serve.rows import parse_query
from sleeper.serve.small_bodies import (
    find_posted_table,
    is_small,
    join_body,
    read_small_body,
    replay,
)

_BODY_BYTES_MAX = 16 * 1024
_SUFFIX = "/query"
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
        name, form = find_posted_table(scope, _SUFFIX), _row_format(scope)
        if name is None or form is None:
            await self.application(scope, receive, send)
            return
        messages = await read_small_body(receive, _BODY_BYTES_MAX)
        body = None
        if (raw := _lookup_body(messages)) is not None:
            lookup = Lookup(partial(parse_query, raw=raw), form)
            with suppress(SleeperError):  # The application responds with the error.
                body = await self.lookups.answer(TableAccess(name, LOCAL_SENDER), lookup)
        if body is None:
            await self.application(scope, replay(messages, receive), send)
            return
        length = (b"content-length", str(len(body)).encode())
        headers = [(b"content-type", form.media_type.encode()), length, _NO_SNIFFING]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _row_format(scope: Scope) -> RowFormat | None:
    """Returns the format of the rows; `None` for a request that is not small and ordinary."""
    content_type = read_header(scope, b"content-type")
    if content_type != "application/json" or not is_small(scope, _BODY_BYTES_MAX):
        return None
    return _FORMATS.get(read_header(scope, b"accept"))


def _lookup_body(messages: Sequence[Message]) -> Mapping[str, Any] | None:
    """Returns a whole `Query` body that selects keys of the newest version only."""
    body = join_body(messages)
    if body is None:
        return None
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        return None
    is_lookup = isinstance(raw, dict) and raw.get("keys") and not any(map(raw.get, _OTHER_MEMBERS))
    return raw if is_lookup else None
