"""Counts, logs and traces of HTTP requests."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sleeper.clock import iso_time, system_clock
from sleeper.serve.bodies import DISCONNECTED
from sleeper.serve.routes import ENDPOINTS
from sleeper.tracing import Span, request_span

_TABLES = "/tables/"
_ROUTES = frozenset(
    {endpoint.path for endpoint in ENDPOINTS} | {"/", "/metrics", "/openapi.json", "/live"}
)
OTHER_ROUTE = "other"

CountRequest = Callable[[str, str, int, float], None]
"""Receives the method, the route, the status and the seconds of a request."""


@dataclass(frozen=True, slots=True)
class ObservedRequests:
    """Middleware that counts and traces requests over HTTP, and writes a line for each to a log."""

    application: ASGIApp
    count: CountRequest
    log: TextIO | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        route = find_route(path)
        named = None if route == OTHER_ROUTE else route
        with request_span(method, path, named, scope["scheme"], scope["headers"]) as span:
            await self._observe(scope, receive, send, route, span)

    async def _observe(
        self, scope: Scope, receive: Receive, send: Send, route: str, span: Span
    ) -> None:
        start, status, size = time.perf_counter(), DISCONNECTED, 0

        async def send_counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                span.set_response(status)
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self.application(scope, receive, send_counted)
        finally:
            seconds = time.perf_counter() - start
            method, path = scope["method"], scope["path"]
            self.count(method, route, status, seconds)
            if self.log is not None:
                client = (scope.get("client") or ("-",))[0]
                # Percent signs keep control characters out of the log. Queries may have data.
                line = f"{client} {method} {quote(path)} {status} {size} {seconds * 1e3:.1f}ms"
                # Nobody may read the log any more.
                with suppress(OSError, ValueError):
                    self.log.write(f"{iso_time(system_clock())} {line}\n")
                    self.log.flush()


def find_route(path: str) -> str:
    """Returns the path of the endpoint, with a placeholder for a name in it."""
    if path in _ROUTES:
        return path
    if path.startswith(_TABLES):
        _, slash, rest = path[len(_TABLES) :].partition("/")
        route = f"/tables/{{name}}{slash}{rest}"
    elif path.startswith("/queries/"):
        route = "/queries/{id:path}"
    else:
        return OTHER_ROUTE
    return route if route in _ROUTES else OTHER_ROUTE
