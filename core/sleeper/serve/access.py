"""Who may come in: those with the token; without one, only programs of this machine.

A browser carries other sites' pages to servers of this machine. So a server without a token
answers only to names of this machine, and no WebSocket is opened from another site's page.
"""

import hmac
import ipaddress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sleeper.errors import InvalidRequestError
from sleeper.jobs.queue import LOCAL_SENDER


def caller_of(request: Request) -> str:
    """Behind API Gateway, whom IAM has let in; else whoever works with this machine's folder."""
    event: dict[str, Any] | None = request.scope.get("aws.event")
    if event is None:
        return LOCAL_SENDER
    identity = event["requestContext"].get("authorizer", {}).get("iam", {})
    return str(identity.get("callerId") or "unknown")


TOKEN_VARIABLE = "SLEEPER_SERVE_TOKEN"
_TOKEN_CHARACTERS_MIN = 16
# The page and the description say nothing of the tables.
_OPEN_TO_ALL = ("/", "/openapi.json")


@dataclass(frozen=True, slots=True)
class Access:
    """Lets a request through to the application, or refuses it. No token: only loopback.

    The token is never logged or shown.
    """

    application: ASGIApp
    token: str | None

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
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        origin = headers.get("origin")
        if scope["type"] == "websocket" and origin and origin.partition("://")[2] != host:
            return 403, "a page of another site may not open a WebSocket here"
        if self.token is None:
            if not is_loopback(_host_name(host)):
                return 403, "without a token this server is only known by names of this machine"
            return None
        if scope["type"] == "http" and scope["path"] in _OPEN_TO_ALL:
            return None
        given = headers.get("authorization", "")
        expected = f"Bearer {self.token}"
        # Takes the same time whatever is wrong.
        if not hmac.compare_digest(given.encode(), expected.encode()):
            return 401, "a bearer token is needed, and it must be the right one"
        return None


def token_for(host: str, token: str | None) -> str | None:
    """The token that is needed to serve at a host. InvalidRequestError if one is missing."""
    if not token:
        if is_loopback(host):
            return None
        raise InvalidRequestError(
            f"host {host!r} can be reached by others: set {TOKEN_VARIABLE} to a token that they "
            "must give"
        )
    if len(token) < _TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable():
        raise InvalidRequestError(
            f"{TOKEN_VARIABLE} must have {_TOKEN_CHARACTERS_MIN} characters or more, ASCII alone"
        )
    return token


def _host_name(host: str) -> str:
    """The name in a Host header; empty if there is none to be found."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can mean itself by it."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
