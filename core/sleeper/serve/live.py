"""Queries over a WebSocket (docs/formats.md, "WebSocket frames").

A connection may run several queries at once. A query runs in one process, so it has no
`subqueries` frame and ends with one frame of its own id, `completed` or `error`. An idle query
sends a `rows` frame without rows every 15 s as a heartbeat, which every client understands.
"""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import anyio
from starlette.websockets import WebSocket

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.jobs.query_tracker import Connection
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.query import (
    QUERY_TYPE,
    QueryMessage,
    make_query,
    query_message_from_json,
    read_query_id,
    replace_connections,
)
from sleeper.query.result import TimeLimit
from sleeper.query.rows.json_pages import JsonPage, json_pages
from sleeper.query.service import open_query, read_schema
from sleeper.serve.bodies import describe_problem
from sleeper.serve.service import RowFetcher, RowStream, Service
from sleeper.tables import find_table

FRAME_BYTES_MAX = 120 * 1024
_QUERIES_MAX = 8
_CONNECTION = Connection("here", "here")


@dataclass(slots=True)
class LiveConnection:
    """An open WebSocket and the queries that run for it."""

    websocket: WebSocket
    service: Service
    _running: "list[LiveQuery]" = field(default_factory=list)
    _sending: anyio.Lock = field(default_factory=anyio.Lock)

    async def serve(self) -> None:
        """Runs queries until the connection is closed, which cancels running ones."""
        await self.websocket.accept()
        async with anyio.create_task_group() as tasks:
            while (message := await self.websocket.receive())["type"] == "websocket.receive":
                tasks.start_soon(self._run, message.get("text") or "")
            for query in self._running:
                query.stop()
            tasks.cancel_scope.cancel()

    async def _run(self, body: str) -> None:
        query = LiveQuery(self, read_query_id(body, uuid.uuid4().hex))
        try:
            if len(self._running) >= _QUERIES_MAX:
                raise UnavailableError(f"{_QUERIES_MAX} queries already run on this connection")
            self._running.append(query)
            try:
                await query.run(body)
            finally:
                self._running.remove(query)
        except Exception as error:
            await query.send("error", error=describe_problem(error)[1]["reason"])

    async def send(self, frame: str, seconds_max: float | None = None) -> None:
        """Sends a frame. Raises `InvalidRequestError` if the client does not read it in time."""
        slots = self.service.slots
        with nullcontext() if seconds_max is None else slots.limit_send(seconds_max):
            async with self._sending:
                await self.websocket.send_text(frame)
            return
        raise InvalidRequestError("the query was stopped: the client did not read its rows in time")


@dataclass(slots=True, eq=False)
class LiveQuery:
    """A query of a connection."""

    connection: LiveConnection
    id: str
    _fetcher: RowFetcher[JsonPage] | None = None
    _sent: float = field(default_factory=time.monotonic)

    def stop(self) -> None:
        """Cancels the query."""
        if self._fetcher is not None:
            self._fetcher.stop()

    async def run(self, body: str) -> None:
        """Sends the rows and a `completed` frame. Raises the errors of the query."""
        message = parse_message(body, self.id)
        room = FRAME_BYTES_MAX - len(self._rows("").encode())

        def open_rows(limit: TimeLimit) -> RowStream:
            instance = self.connection.service.instance
            name = find_table(instance.tables.index, message.table_name, message.table_id).name
            query = make_query(message, read_schema(instance, name, message.version()))
            return open_query(instance, name, query, limit, LOCAL_SENDER)

        def split(result: RowStream) -> Iterator[JsonPage]:
            return json_pages(result, room, message.results.batch_size)

        self._fetcher = RowFetcher(self.connection.service, open_rows, split)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_alive)
            try:
                rows = await self._send_rows(self._fetcher, message)
            except Exception as error:
                # A task group would wrap the error in an exception group.
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        await self.send("completed", rowCount=rows, locations=[])

    async def _send_rows(self, fetcher: RowFetcher[JsonPage], message: QueryMessage) -> int:
        """Sends the rows and returns their number."""
        rows, is_last = 0, False
        async with fetcher.slot():
            pages, is_last = await fetcher.fetch(bool)
            while True:
                for page in pages:
                    rows += page.rows
                    if message.results.kind is DestinationKind.WEBSOCKET:
                        seconds = fetcher.service.limits.read_seconds_max
                        remaining = fetcher.limit.seconds_left
                        await self._send(
                            self._rows(page.text),
                            seconds if remaining is None else min(remaining, seconds),
                        )
                if is_last:
                    return rows
                pages, is_last = await fetcher.fetch(bool)

    async def send(self, frame: str, **members: object) -> None:
        """Sends a frame without rows."""
        await self._send(json.dumps({"message": frame, "queryId": self.id, **members}))

    async def _send(self, frame: str, seconds_max: float | None = None) -> None:
        await self.connection.send(frame, seconds_max)
        self._sent = time.monotonic()

    async def _keep_alive(self) -> None:
        seconds = self.connection.service.limits.keep_alive_seconds
        while True:
            await anyio.sleep(max(0.01, self._sent + seconds - time.monotonic()))
            if time.monotonic() - self._sent >= seconds:
                await self._send(self._rows("[]"))

    def _rows(self, rows: str) -> str:
        """Returns a frame of rows, which are JSON text."""
        members = json.dumps({"message": "rows", "queryId": self.id})
        return f'{members[:-1]}, "rows": {rows}}}'


def parse_message(body: str, query_id: str) -> QueryMessage:
    """Returns the query of a frame. Raises `InvalidRequestError` if the frame is not valid."""
    raw = replace_connections(body, _CONNECTION)
    if raw.get("type", QUERY_TYPE) != QUERY_TYPE:
        raise InvalidRequestError(
            f'query message: "type" is {raw["type"]!r} (expected {QUERY_TYPE!r})'
        )
    message = query_message_from_json(raw, query_id)
    if message.results.kind not in {DestinationKind.WEBSOCKET, DestinationKind.NOWHERE}:
        raise InvalidRequestError(
            f"query message: results to {message.results.kind.value} require the query queue "
            "(expected the WebSocket, or no output)"
        )
    return message
