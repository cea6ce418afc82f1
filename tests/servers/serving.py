"""The server of `sleeper serve` in a thread of this process, and a client."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Any, TextIO

import httpx
import pyarrow as pa
from websockets.sync.client import ClientConnection, connect

from sleeper.instance import Instance
from sleeper.serve.server import make_server
from sleeper.serve.service import ServerLimits
from sleeper.serve.tokens import Right, Tokens

_SECONDS_MAX = 60
_LIMITS = ServerLimits()
OPEN = Tokens({}, Right.ADMIN)
"""Whoever reaches the server may do everything."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server."""

    url: str

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=_SECONDS_MAX, **options)

    def post(self, path: str, body: object, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=_SECONDS_MAX, **options)

    def rows(self, path: str, body: object) -> list[dict[str, Any]]:
        """Returns rows read as an Arrow stream, which fails if the response is incomplete."""
        accept = {"Accept": "application/vnd.apache.arrow.stream"}
        answer = self.post(path, body, headers=accept)
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, Any]] = pa.ipc.open_stream(answer.content).read_all().to_pylist()
        return rows

    def live(self, **options: Any) -> ClientConnection:
        return connect(self.url.replace("http", "ws") + "/live", proxy=None, **options)


@contextmanager
def serving(
    instance: Instance,
    limits: ServerLimits = _LIMITS,
    token: str | None = None,
    access_log: TextIO | None = None,
    read_only: bool = False,
) -> Iterator[Serving]:
    """Serves an instance at a free port until the end of the block."""
    output_lines: Queue[str] = Queue()
    tokens = Tokens({token: Right.ADMIN}) if token else OPEN
    server = make_server(
        instance, "127.0.0.1", 0, tokens, limits, output_lines.put, read_only, access_log
    )
    thread = threading.Thread(target=server.run, name="serving")
    thread.start()
    try:
        yield Serving(output_lines.get(timeout=_SECONDS_MAX))
    finally:
        server.should_exit = True
        thread.join(_SECONDS_MAX)
        assert not thread.is_alive()
