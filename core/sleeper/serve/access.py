"""Authentication: bearer tokens, or programs on this machine only.

A page of any site can make a browser on this machine send requests to its servers. So a server that
answers requests without a token accepts only loopback names in the Host header, and refuses
WebSockets that a page of another site opens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.runs.transport import is_loopback
from sleeper.serve.bodies import ForbiddenError
from sleeper.serve.console import FOLDER
from sleeper.serve.tokens import Right, Tokens, required_right


class TableAccess(NamedTuple):
    """The name of a table, and a caller, which restricts what requests may see or change."""

    table_name: str
    caller: str


CheckAccess = Callable[[OpenTable, str], None]
"""Raises InvalidRequestError if the caller may not do it with the table."""


def open_table(instance: Instance, access: TableAccess, check: CheckAccess) -> OpenTable:
    """Returns the table. ForbiddenError if the caller may not do what `check` checks."""
    table = instance.table(access.table_name)
    try:
        check(table, access.caller)
    except InvalidRequestError as refusal:
        raise ForbiddenError(str(refusal)) from refusal
    return table


def identify_caller(request: Request) -> str:
    """Returns the caller: the IAM identity behind API Gateway, else the local user."""
    event: dict[str, Any] | None = request.scope.get("aws.event")
    if event is None:
        return LOCAL_SENDER
    identity = event["requestContext"].get("authorizer", {}).get("iam", {})
    return str(identity.get("callerId") or "unknown")


# They contain no data of the instance.
_PUBLIC_PATHS = ("/", "/openapi.json", "/health", "/health/live")


@dataclass(frozen=True, slots=True)
class Access:
    """Middleware that passes requests with the right to the application and refuses others."""

    application: ASGIApp
    tokens: Tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] in {"http", "websocket"} else None
        if refusal is None:
            await self.application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})
        else:
            status, reason = refusal
            headers = {"X-Content-Type-Options": "nosniff"}
            if status == 401:
                headers["WWW-Authenticate"] = "Bearer"
            kind = "Unauthorized" if status == 401 else "Forbidden"
            answer = JSONResponse({"error": kind, "reason": reason}, status, headers)
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        host = read_header(scope, b"host")
        origin = read_header(scope, b"origin") if scope["type"] == "websocket" else ""
        if origin and origin.partition("://")[2] != host:
            return 403, "a page of another site cannot open a WebSocket"
        if scope["type"] == "http" and _is_public(scope["path"]):
            return None if self.tokens.open_right is None else _refuse_other_host(host)
        authorization = read_header(scope, b"authorization")
        right = self.tokens.find_right(authorization)
        if right is None:
            return 401, "missing or wrong bearer token"
        if not authorization and (refusal := _refuse_other_host(host)) is not None:
            return refusal
        required = Right.READ
        if scope["type"] == "http":
            required = required_right(scope["method"], scope["path"])
        if right >= required:
            return None
        if not authorization:
            return 401, "changes need a bearer token: `sleeper serve` prints one when it starts"
        name, needed = right.name.lower(), required.name.lower()
        return 403, f"the token has the right {name!r} (expected {needed!r})"


def _refuse_other_host(host: str) -> tuple[int, str] | None:
    if _is_loopback_host(host):
        return None
    return 403, "host must be a loopback name, because the server needs no token for reads"


def _is_public(path: str) -> bool:
    return path in _PUBLIC_PATHS or path.startswith(FOLDER)


def read_header(scope: Scope, name: bytes) -> str:
    """Returns the first header of a name in lower case, an empty string if there is none."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return ""


@lru_cache(maxsize=64)
def _is_loopback_host(host: str) -> bool:
    """Returns whether a Host header names this machine."""
    return is_loopback(_host_name(host))


def _host_name(host: str) -> str:
    """Returns the name in a Host header; an empty string if the header is not valid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
