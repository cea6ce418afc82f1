"""Routes that answer with rows: a query of one table, and SQL over all."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.partitions.json import key_value_from_json, make_range, region_or_none_from_json
from sleeper.partitions.region import Region, key_region, whole_region
from sleeper.processing.model import Processing
from sleeper.processing.text import iterator_call, parse_aggregations, parse_filters
from sleeper.query.interruption import TimeLimit
from sleeper.query.request import Query
from sleeper.query.result import QueryResult
from sleeper.query.service import open_query, schema_of
from sleeper.query.sql.as_of import as_of_value
from sleeper.schema.model import KeyValue, Schema
from sleeper.serve.access import caller_of
from sleeper.serve.bodies import (
    TooLargeError,
    check_members,
    json_body,
    list_of,
    number_of,
    problem_of,
    problem_response,
    text_of,
)
from sleeper.serve.fetch import Fetching, OpenRows, RowStream, Service
from sleeper.serve.row_formats import RowFormat, accepted_format

logger = logging.getLogger(__name__)
_PIECE_BYTES = 256 * 1024
# To read why the answer ends.
_GRACE_SECONDS = 2


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """An ASGI application that answers one request.

    What goes wrong before the first rows are sent is an error with a status. Later the
    connection is closed without the end of the body, so that no client takes the rows for
    all of them; JSON lines have the reason as their last line.
    """

    service: Service
    open_rows: OpenRows
    form: RowFormat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fetching = Fetching(self.service, self.open_rows, self.form.write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_when_gone, receive, fetching, tasks.cancel_scope)
            try:
                first, is_last = b"", False
                async with fetching.admitted():
                    first, is_last = await self._first(fetching)
                    if not is_last:
                        await self._stream(first, fetching, send)
                if is_last:
                    await self._send_whole(first, send)
            except Exception as error:
                await problem_response(error)(scope, receive, send)
            tasks.cancel_scope.cancel()

    async def _first(self, fetching: Fetching[bytes]) -> tuple[bytes, bool]:
        bytes_max = self.service.terms.answer_bytes_max
        if bytes_max is None:
            return await _next(fetching, _PIECE_BYTES)
        whole, is_last = await _next(fetching, bytes_max + 1)
        if len(whole) > bytes_max:
            raise TooLargeError(
                f"the answer is larger than the {bytes_max:,} bytes that can be given here: ask "
                "for fewer rows or columns, or send the query to the query queue"
            )
        return whole, is_last

    async def _send_whole(self, body: bytes, send: Send) -> None:
        length = (b"content-length", str(len(body)).encode())
        await send(self._start(length))
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, first: bytes, fetching: Fetching[bytes], send: Send) -> None:
        await send(self._start())
        # Who reads nothing is left alone when the query's time is up.
        with anyio.move_on_after(self.service.terms.seconds_max + _GRACE_SECONDS) as time:
            try:
                piece, is_last = first, False
                while not is_last:
                    await self._send_in_time(piece, send)
                    piece, is_last = await _next(fetching, _PIECE_BYTES)
                await self._send_in_time(piece, send)
                await send(_body(b"", more=False))
            except _StalledError:
                logger.warning("stopped a query: its reader stalled")
            except Exception as error:
                logger.warning("an answer broke off: %s", error)
                if self.form.tells_errors:
                    reason = json.dumps(problem_of(error)[1]).encode()
                    await send(_body(reason + b"\n", more=True))
        if time.cancelled_caught:
            logger.warning("an answer broke off: it was not read in time")

    async def _send_in_time(self, body: bytes, send: Send) -> None:
        """Sends the bytes in parts, each of which the reader must take in time.

        A reader that takes none holds the slot of a query that others wait for.
        """
        for start in range(0, len(body), _PIECE_BYTES):
            with anyio.move_on_after(self.service.terms.read_seconds_max) as time:
                await send(_body(body[start : start + _PIECE_BYTES], more=True))
            if time.cancelled_caught:
                raise _StalledError

    def _start(self, *headers: tuple[bytes, bytes]) -> Message:
        kind = (b"content-type", self.form.media_type.encode())
        return {"type": "http.response.start", "status": 200, "headers": [kind, *headers]}


class _StalledError(Exception):
    """The reader of an answer does not read."""


async def _next(fetching: Fetching[bytes], enough: int) -> tuple[bytes, bool]:
    pieces, is_last = await fetching.fetch(lambda pieces: sum(map(len, pieces)) >= enough)
    return b"".join(pieces), is_last


async def _stop_when_gone(
    receive: Receive, fetching: Fetching[bytes], scope: anyio.CancelScope
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    fetching.stop()
    scope.cancel()


def _body(body: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


MEMBERS = (
    "keys",
    "ranges",
    "regions",
    "columns",
    "limit",
    "asOf",
    "filters",
    "aggregations",
    "iterator",
    "iteratorConfig",
)


def query_of_body(schema: Schema, raw: Mapping[str, Any]) -> Query:
    """The rows of all keys, ranges and regions together; the whole table if none is given.

    Bytes are base64, in keys and ranges strings are as they are; regions are as in messages.
    InvalidRequestError names the member that does not fit.
    """
    check_members(raw, MEMBERS)
    regions = (
        *_each(raw, "keys", lambda key: _region_of_key(schema, key)),
        *_each(raw, "ranges", lambda within: _region_of_range(schema, within)),
        *_each(raw, "regions", lambda region: region_or_none_from_json(schema, region)),
    )
    asked = any(raw.get(name) is not None for name in ("keys", "ranges", "regions"))
    columns = raw.get("columns")
    return Query(
        regions if asked else None,
        None if columns is None else tuple(_texts(raw, "columns")),
        number_of(raw, "limit", 0),
        number_of(raw, "asOf", 1),
        Processing(
            parse_filters(text_of(raw, "filters") or ""),
            parse_aggregations(text_of(raw, "aggregations") or ""),
            iterator_call(text_of(raw, "iterator"), text_of(raw, "iteratorConfig")),
        ),
    )


def _each(
    raw: Mapping[str, Any], name: str, region_of: Callable[[Any], Region | None]
) -> Iterable[Region]:
    for place, value in enumerate(list_of(raw, name)):
        try:
            region = region_of(value)
        except InvalidRequestError as error:
            raise InvalidRequestError(f'"{name}[{place}]": {error}') from error
        if region is not None:
            yield region


def _region_of_key(schema: Schema, key: Any) -> Region:
    values = key if isinstance(key, list) else [key]
    if len(values) != len(schema.row_keys):
        names = ", ".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"key {key!r} has {len(values)} values: one per row key field is needed ({names})"
        )
    fields = zip(schema.row_keys, values, strict=True)
    return key_region(schema, [key_value_from_json(field, value) for field, value in fields])


def _region_of_range(schema: Schema, ends: Any) -> Region:
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidRequestError(f"range {ends!r} is not [min, max], null for an open end")
    field = schema.row_keys[0]
    low, high = (_optional(schema, end) for end in ends)
    return Region((make_range(field, low, high), *whole_region(schema).ranges[1:]))


def _optional(schema: Schema, end: Any) -> KeyValue | None:
    return None if end is None else key_value_from_json(schema.row_keys[0], end)


def _texts(raw: Mapping[str, Any], name: str) -> Sequence[str]:
    values = list_of(raw, name)
    if not all(isinstance(value, str) for value in values):
        raise InvalidRequestError(f'"{name}" must be a list of names')
    return values


@dataclass(frozen=True, slots=True)
class RowRoutes:
    """Answers are as large as their rows: see `RowAnswer`."""

    instance: Instance
    service: Service

    async def query(self, request: Request) -> RowAnswer:
        """Rows of a table by key, range or region."""
        form = accepted_format(request.headers.get("accept"))
        raw = await json_body(request, self.service.terms.body_bytes_max)
        name = request.path_params["name"]
        open_rows = partial(_open_query, self.instance, name, raw, caller_of(request))
        return RowAnswer(self.service, open_rows, form)

    async def sql(self, request: Request) -> RowAnswer:
        """Rows of a statement."""
        form = accepted_format(request.headers.get("accept"))
        raw = await json_body(request, self.service.terms.body_bytes_max)
        check_members(raw, ("statement", "asOf"))
        statement = text_of(raw, "statement")
        if not statement:
            raise InvalidRequestError('"statement" is missing: one SELECT, as text')
        caller = caller_of(request)
        as_of = raw.get("asOf")
        as_of_value(as_of)  # refuses now what is wrong with it

        def open_rows(limit: TimeLimit) -> RowStream:
            return self.service.open_statement(statement, limit, caller, as_of)

        return RowAnswer(self.service, open_rows, form)


def _open_query(
    instance: Instance, name: str, raw: Mapping[str, Any], caller: str, limit: TimeLimit
) -> QueryResult:
    query = query_of_body(schema_of(instance, name), raw)
    return open_query(instance, name, query, limit, caller)
