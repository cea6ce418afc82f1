"""Queries over a WebSocket (docs/formats.md, "WebSocket frames").

A connection may have several queries at once. A query runs in one place, so it has no
`subqueries` frame and ends with one frame of its own id, `completed` or `error`. While there is
nothing to say of a query, a frame of no rows is sent every 15 s: a client that knows the frames
takes it for rows, and none gives up.
"""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio
from starlette.websockets import WebSocket

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.connection import Connection
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.query.interruption import TimeLimit
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.query import (
    QUERY_TYPE,
    QueryMessage,
    query_id_of,
    query_message_from_json,
    query_of,
    with_connection,
)
from sleeper.query.rows.json_text import JsonPage, json_pages
from sleeper.query.service import open_query, schema_of
from sleeper.serve.bodies import problem_of
from sleeper.serve.fetch import Fetching, RowStream, Service
from sleeper.tables.table_index import find_table

FRAME_BYTES_MAX = 120 * 1024
_QUERIES_MAX = 8
_HERE = Connection("here", "here")


@dataclass(slots=True)
class LiveConnection:
    """An open WebSocket and the queries that run for it."""

    websocket: WebSocket
    instance: Instance
    service: Service
    _running: "list[LiveQuery]" = field(default_factory=list)
    _sending: anyio.Lock = field(default_factory=anyio.Lock)

    async def serve(self) -> None:
        """Answers queries until the connection is closed, which stops those that run."""
        await self.websocket.accept()
        async with anyio.create_task_group() as tasks:
            while (message := await self.websocket.receive())["type"] == "websocket.receive":
                tasks.start_soon(self._answer, message.get("text") or "")
            for query in self._running:
                query.stop()
            tasks.cancel_scope.cancel()

    async def _answer(self, body: str) -> None:
        query = LiveQuery(self, query_id_of(body, uuid.uuid4().hex))
        try:
            if len(self._running) >= _QUERIES_MAX:
                raise UnavailableError(f"{_QUERIES_MAX} queries run on this connection already")
            self._running.append(query)
            try:
                await query.run(body)
            finally:
                self._running.remove(query)
        except Exception as error:
            await query.tell("error", error=problem_of(error)[1]["reason"])

    async def send(self, frame: str, seconds_max: float | None = None) -> None:
        """Waits for a reader who is slow. InvalidRequestError if he is slower than the query
        may take.
        """
        with anyio.move_on_after(seconds_max):
            async with self._sending:
                await self.websocket.send_text(frame)
            return
        raise InvalidRequestError("the query was stopped: its rows were not read in time")


@dataclass(slots=True, eq=False)
class LiveQuery:
    """One query of a connection."""

    connection: LiveConnection
    id: str
    _fetching: Fetching[JsonPage] | None = None
    _told: float = field(default_factory=time.monotonic)

    def stop(self) -> None:
        """Nobody waits for it any more."""
        if self._fetching is not None:
            self._fetching.stop()

    async def run(self, body: str) -> None:
        """Sends the rows and that they are complete. Errors as of the query."""
        message = message_of(body, self.id)
        opening = _Opening(self.connection.instance, message)
        room = FRAME_BYTES_MAX - len(self._rows("").encode())

        def cut(result: RowStream) -> Iterator[JsonPage]:
            return json_pages(result, room, message.results.batch_size)

        self._fetching = Fetching(self.connection.service, opening.rows, cut)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_alive)
            try:
                rows = await self._send_rows(self._fetching, message)
            except Exception as error:
                # As it is, and not as one of a group.
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        await self.tell("completed", rowCount=rows, locations=[])

    async def _send_rows(self, fetching: Fetching[JsonPage], message: QueryMessage) -> int:
        """How many there were."""
        rows, is_last = 0, False
        async with fetching.admitted():
            pages, is_last = await fetching.fetch(bool)
            while True:
                for page in pages:
                    rows += page.rows
                    if message.results.kind is DestinationKind.WEBSOCKET:
                        seconds = fetching.service.terms.read_seconds_max
                        left = fetching.limit.seconds_left
                        await self._send(
                            self._rows(page.text), seconds if left is None else min(left, seconds)
                        )
                if is_last:
                    return rows
                pages, is_last = await fetching.fetch(bool)

    async def tell(self, frame: str, **members: object) -> None:
        """Sends a frame without rows."""
        await self._send(json.dumps({"message": frame, "queryId": self.id, **members}))

    async def _send(self, frame: str, seconds_max: float | None = None) -> None:
        await self.connection.send(frame, seconds_max)
        self._told = time.monotonic()

    async def _keep_alive(self) -> None:
        seconds = self.connection.service.terms.keep_alive_seconds
        while True:
            await anyio.sleep(max(0.01, self._told + seconds - time.monotonic()))
            if time.monotonic() - self._told >= seconds:
                await self._send(self._rows("[]"))

    def _rows(self, rows: str) -> str:
        """A frame of rows, which are JSON already."""
        members = json.dumps({"message": "rows", "queryId": self.id})
        return f'{members[:-1]}, "rows": {rows}}}'


@dataclass(frozen=True, slots=True)
class _Opening:
    """What a thread does to start the message's query."""

    instance: Instance
    message: QueryMessage

    def rows(self, limit: TimeLimit) -> RowStream:
        message, instance = self.message, self.instance
        name = find_table(instance.tables.index, message.table_name, message.table_id).name
        query = query_of(message, schema_of(instance, name))
        return open_query(instance, name, query, limit, LOCAL_SENDER)


def message_of(body: str, query_id: str) -> QueryMessage:
    raw = with_connection(body, _HERE)
    if raw.get("type", QUERY_TYPE) != QUERY_TYPE:
        raise InvalidRequestError(
            f'query message: "type" is {raw["type"]!r}: expected {QUERY_TYPE!r}'
        )
    message = query_message_from_json(raw, query_id)
    if message.results.kind not in {DestinationKind.WEBSOCKET, DestinationKind.NOWHERE}:
        raise InvalidRequestError(
            f"query message: results to {message.results.kind.value} are for the query queue: here "
            "they go to the WebSocket, or nowhere"
        )
    return message
