"""Authentication: a bearer token, or programs on this machine only.

A page of any site can make a browser on this machine send requests to its servers. So a server
without a token accepts only loopback names in the Host header, and refuses WebSockets that a page
of another site opens.
"""

import hmac
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sleeper.errors import InvalidRequestError
from sleeper.jobs.queue import LOCAL_SENDER
from sleeper.runs.transport import is_loopback
from sleeper.serve.console import FOLDER


class TableAccess(NamedTuple):
    """The name of a table, and a caller, which restricts what requests may see or change."""

    table_name: str
    caller: str


def identify_caller(request: Request) -> str:
    """Returns the caller: the IAM identity behind API Gateway, else the local user."""
    event: dict[str, Any] | None = request.scope.get("aws.event")
    if event is None:
        return LOCAL_SENDER
    identity = event["requestContext"].get("authorizer", {}).get("iam", {})
    return str(identity.get("callerId") or "unknown")


TOKEN_VARIABLE = "SLEEPER_SERVE_TOKEN"
_TOKEN_CHARACTERS_MIN = 16
# They contain no data of the instance.
_PUBLIC_PATHS = ("/", "/openapi.json", "/health", "/health/live")


@dataclass(frozen=True, slots=True)
class Access:
    """Middleware that passes authenticated requests to the application and refuses others.

    `token` is `None` for a server of this machine only. It is never logged or shown.
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
        host = read_header(scope, b"host")
        origin = read_header(scope, b"origin") if scope["type"] == "websocket" else ""
        if origin and origin.partition("://")[2] != host:
            return 403, "a page of another site cannot open a WebSocket"
        if self.token is None:
            if not _is_loopback_host(host):
                return 403, "host must be a loopback name, because the server has no token"
            return None
        if scope["type"] == "http" and _is_public(scope["path"]):
            return None
        given = read_header(scope, b"authorization")
        expected = f"Bearer {self.token}"
        # Takes the same time for every wrong token.
        if not hmac.compare_digest(given.encode(), expected.encode()):
            return 401, "missing or wrong bearer token"
        return None


def check_token(host: str, token: str | None) -> str | None:
    """Returns the token to serve at a host with. Raises `InvalidRequestError` if one is missing."""
    if not token:
        if is_loopback(host):
            return None
        raise InvalidRequestError(
            f"other machines can reach host {host!r}: set {TOKEN_VARIABLE} to a token, or pass "
            "--token-file"
        )
    if len(token) < _TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable():
        raise InvalidRequestError(
            f"the token ({TOKEN_VARIABLE} or --token-file) must have at least "
            f"{_TOKEN_CHARACTERS_MIN} characters, all ASCII"
        )
    return token


def _is_public(path: str) -> bool:
    return path in _PUBLIC_PATHS or path.startswith(FOLDER)


def read_token(file: Path) -> str:
    """Returns the token in a file, without white space around it. InvalidRequestError if none."""
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"token file {file} cannot be read: {error}") from error
    if not token:
        raise InvalidRequestError(f"token file {file} is empty (expected a token)")
    return token


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
