"""The ASGI application of an instance, for `sleeper serve` and for API Gateway."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.query.result import TimeLimit
from sleeper.query.sql.service import open_sql
from sleeper.query.sql.tables import parse_as_of
from sleeper.serve.bodies import answer_disconnect, answer_http_problem, answer_problem
from sleeper.serve.console import console_routes
from sleeper.serve.live import LiveConnection
from sleeper.serve.lookups import LookupRuns
from sleeper.serve.openapi import openapi_document
from sleeper.serve.routes import ENDPOINTS
from sleeper.serve.row_writers import RowWriters
from sleeper.serve.service import OpenStatement, QuerySlots, RowStream, ServerLimits, Service
from sleeper.serve.small_requests import WRITE_BYTES_MAX, SmallRequests


def make_application(
    instance: Instance,
    limits: ServerLimits,
    with_page: bool = True,
    open_statement: OpenStatement | None = None,
    read_only_reason: str | None = None,
    slots: QuerySlots | None = None,
    writers: RowWriters | None = None,
    more_routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """Returns the application: the endpoints, and WebSockets at `/live`. Access is not checked.

    SQL statements run in this process, unless `open_statement` runs them elsewhere. With
    `read_only_reason`, changes of tables are refused for that reason.
    """

    def open_here(statement: str, limit: TimeLimit, caller: str, as_of: Any) -> RowStream:
        return open_sql(instance, statement, limit, caller, parse_as_of(as_of))

    slots = slots or QuerySlots(limits.queries_max, limits.waiting_max)
    service = Service(
        instance,
        limits,
        slots,
        open_statement or open_here,
        writers or RowWriters(instance, row_limits=limits.rows),
        read_only_reason,
    )

    async def live(websocket: WebSocket) -> None:
        await LiveConnection(websocket, service).serve()

    routes: list[BaseRoute] = [
        *(endpoint.make_route(service) for endpoint in ENDPOINTS),
        Route("/openapi.json", _openapi),
        WebSocketRoute("/live", live),
        *more_routes,
    ]
    if with_page:
        routes += console_routes()
    handlers = {
        SleeperError: answer_problem,
        HTTPException: answer_http_problem,
        ClientDisconnect: answer_disconnect,
        Exception: answer_problem,
    }
    return Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(NoSniff)])


def make_server_application(
    instance: Instance,
    limits: ServerLimits,
    open_statement: OpenStatement | None = None,
    read_only_reason: str | None = None,
    writers: RowWriters | None = None,
    more_routes: Sequence[BaseRoute] = (),
) -> ASGIApp:
    """Returns the application of a server, which answers lookups and writes that wait together.

    A function of API Gateway answers one request at a time.
    """
    writers = writers or RowWriters(instance, row_limits=limits.rows)
    slots = QuerySlots(limits.queries_max, limits.waiting_max)
    application = make_application(
        instance,
        limits,
        open_statement=open_statement,
        read_only_reason=read_only_reason,
        slots=slots,
        writers=writers,
        more_routes=more_routes,
    )
    return SmallRequests(
        application,
        LookupRuns(instance, limits, slots),
        writers if read_only_reason is None else None,
        min(WRITE_BYTES_MAX, limits.body_bytes_max),
    )


@dataclass(frozen=True, slots=True)
class NoSniff:
    """Middleware that forbids browsers to guess the type of a response from its content."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message["headers"])["X-Content-Type-Options"] = "nosniff"
            await send(message)

        await self.app(scope, receive, send_with_header)


async def _openapi(_request: Request) -> Response:
    return JSONResponse(openapi_document())
