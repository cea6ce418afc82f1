"""The application: an instance's routes, whoever serves them."""

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.query.interruption import TimeLimit
from sleeper.query.service import open_sql
from sleeper.query.sql.as_of import as_of_value
from sleeper.serve.bodies import answer_http_problem, answer_problem
from sleeper.serve.description import description
from sleeper.serve.fetch import OpenStatement, QuerySlots, RowStream, Service
from sleeper.serve.live import LiveConnection
from sleeper.serve.routes import Routes
from sleeper.serve.rows import RowRoutes
from sleeper.serve.terms import Terms


async def page(_request: Request) -> Response:
    """One page that loads nothing from elsewhere, and whose own code alone may run."""
    text = _text()
    return HTMLResponse(text, headers={"Content-Security-Policy": _policy(text)})


@cache
def _text() -> str:
    return (resources.files(__package__) / "page.html").read_text(encoding="utf-8")


@cache
def _policy(text: str) -> str:
    script, style = (_hash(re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[0]) for tag in _OWN)
    return (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


_OWN = ("script", "style")


def _hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def make_application(
    instance: Instance,
    terms: Terms,
    with_page: bool = True,
    open_statement: OpenStatement | None = None,
) -> Starlette:
    """Answers HTTP, and WebSockets at `/live` where its server can. Access is not checked.

    Unless it is told otherwise, SQL statements run in this process.
    """

    def open_here(statement: str, limit: TimeLimit, caller: str, as_of: Any) -> RowStream:
        return open_sql(instance, statement, limit, caller, as_of_value(as_of))

    slots = QuerySlots(terms.queries_max, terms.waiting_max)
    service = Service(slots, terms, open_statement or open_here)
    plain, rows = Routes(instance, service), RowRoutes(instance, service)

    async def live(websocket: WebSocket) -> None:
        await LiveConnection(websocket, instance, service).serve()

    routes: list[BaseRoute] = [
        Route("/tables", plain.tables),
        Route("/tables/{name}", plain.table),
        Route("/tables/{name}/query", rows.query, methods=["POST"]),
        Route("/sql", rows.sql, methods=["POST"]),
        Route("/status", plain.status),
        Route("/queries", plain.submit, methods=["POST"]),
        Route("/queries/{id:path}", plain.query),
        Route("/openapi.json", _description),
        WebSocketRoute("/live", live),
    ]
    if with_page:
        routes.append(Route("/", page))
    handlers = {
        SleeperError: answer_problem,
        HTTPException: answer_http_problem,
        Exception: answer_problem,
    }
    return Starlette(
        routes=routes, exception_handlers=handlers, middleware=[Middleware(DeclaredTypes)]
    )


@dataclass(frozen=True, slots=True)
class DeclaredTypes:
    """Tells browsers to take answers for what their type says, and not to guess from values."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_declared(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message["headers"])["X-Content-Type-Options"] = "nosniff"
            await send(message)

        await self.app(scope, receive, send_declared)


async def _description(_request: Request) -> Response:
    return JSONResponse(description())
