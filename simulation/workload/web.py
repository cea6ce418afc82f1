"""Requests to the HTTP application of an instance, called in this process without a socket."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulation.scheduling.event_loop import SimulatedLoop
from sleeper.instance import Instance
from sleeper.serve.application import make_server_application
from sleeper.serve.service import read_limits


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request."""

    status: int
    body: bytes

    @property
    def is_data_error(self) -> bool:
        """Whether stored data is missing or damaged."""
        return self.status == 500 and json.loads(self.body).get("error") == "Data"

    @property
    def reason(self) -> str:
        """The text of an error."""
        return f"{self.status}: {self.body[:300].decode(errors='replace')}"


class WebServer:
    """A server of an instance, whose event loop belongs to the calling thread."""

    def __init__(self, instance: Instance) -> None:
        self._loop = SimulatedLoop()
        self._application = self._loop.run(_make(instance))

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Sends a request, and returns the whole response."""
        return self._loop.run(_Exchange(method, path, body, headers or {}).send(self._application))

    def post_json(self, path: str, body: object, accept: str = "*/*") -> Response:
        """Sends a JSON body."""
        headers = {"content-type": "application/json", "accept": accept}
        return self.request("POST", path, json.dumps(body).encode(), headers)

    def close(self) -> None:
        """Closes the loop."""
        self._loop.close()


async def _make(instance: Instance) -> Any:
    return make_server_application(instance, read_limits(instance))


@dataclass
class _Exchange:
    """One request and what the application sends. The client stays connected to the end."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    status: int = 0
    parts: list[bytes] = field(default_factory=list)
    is_sent: bool = False

    async def send(self, application: Any) -> Response:
        """Calls the application."""
        path, _, query = self.path.partition("?")
        headers = {**self.headers, "content-length": str(len(self.body))}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await application(scope, self._receive, self._take)
        return Response(self.status, b"".join(self.parts))

    async def _receive(self) -> dict[str, Any]:
        if self.is_sent:
            await asyncio.Event().wait()
        self.is_sent = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def _take(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.append(message.get("body", b""))
