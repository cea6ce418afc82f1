"""The server of `sleeper serve`, and its HTTP connections.

A client that connects and sends nothing, or half a request, holds a file descriptor. So the headers
of a request have a timeout, and a server at its maximum of connections closes the one that has
waited longest for a request.
"""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO, cast

import uvicorn
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.process import SIGTERM_SECONDS_MAX, end_process_after
from sleeper.properties.instance import QUERY_MEMORY_BYTES
from sleeper.serve.access import Access
from sleeper.serve.application import make_server_application
from sleeper.serve.metrics import ServerMetrics
from sleeper.serve.observation import ObservedRequests
from sleeper.serve.routes import system_routes
from sleeper.serve.row_writers import RowWriters
from sleeper.serve.service import ServerLimits, read_limits
from sleeper.serve.sql_processes import SqlProcesses
from sleeper.serve.tokens import Tokens
from sleeper.storage.descriptors import descriptor_limit

_STOP_SECONDS = 5
# The memory of a process that runs a statement, besides that of the statement.
_ENGINE_BYTES = 512 * 1024**2
_READ_ONLY_REASON = "the server is read-only: it was started with --read-only"
# A slow client cannot answer a ping while earlier frames fill its socket.
_PONG_SECONDS = 120.0
# Connections that the system accepts for the server at once.
_BACKLOG = 128
_HEADER_BYTES_MAX = 64 * 1024
# Data files, the instance's databases, pipes of statements.
_OTHER_DESCRIPTORS = 512


def serve(
    instance: Instance,
    host: str,
    port: int,
    tokens: Tokens,
    on_start: Callable[[str], None] = lambda _url: None,
    read_only: bool = False,
    access_log: TextIO | None = None,
) -> None:
    """Serves an instance until it is interrupted. Port 0 chooses a free one.

    `on_start` receives the URL when the server accepts requests. A `read_only` server refuses
    deletes and other changes of tables. `access_log` gets a line for each request. Raises
    `UnavailableError` if the port is in use.
    """
    limits = read_limits(instance)
    server = make_server(instance, host, port, tokens, limits, on_start, read_only, access_log)
    # Loading the engine takes a second, so it starts before the first statement.
    threading.Thread(target=server.statements.prestart, daemon=True).start()
    try:
        server.run()
    except SystemExit as error:  # Raised by uvicorn if it cannot listen.
        raise UnavailableError(f"cannot listen on {host} port {port}: is it in use?") from error


def make_server(
    instance: Instance,
    host: str,
    port: int,
    tokens: Tokens,
    limits: ServerLimits,
    on_start: Callable[[str], None],
    read_only: bool = False,
    access_log: TextIO | None = None,
) -> "StatementServer":
    """Returns a server that is not started."""
    read_only = read_only or instance.read_only
    memory_bytes = 2 * instance.properties().get(QUERY_MEMORY_BYTES) + _ENGINE_BYTES
    statements = SqlProcesses(instance.where, memory_bytes, instance.read_only)
    metrics = ServerMetrics(instance)
    writers = RowWriters(instance, metrics.count_group, limits.rows)
    metrics.watch_waiting(lambda: writers.waiting)
    application = make_server_application(
        instance,
        limits,
        open_statement=statements.open,
        read_only_reason=_READ_ONLY_REASON if read_only else None,
        writers=writers,
        more_routes=[Route("/metrics", metrics.respond), *system_routes(instance, not read_only)],
    )
    access = Access(application, tokens)
    connections = Connections(_limit_connections(limits.connections_max), limits.header_seconds_max)
    config = uvicorn.Config(
        ObservedRequests(access, metrics.count_request, access_log),
        host=host,
        port=port,
        http=cast(Any, connections.protocol),
        backlog=_BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws_max_size=limits.body_bytes_max,
        ws_ping_timeout=_PONG_SECONDS,
        # Compression would take more processor time than the query.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        lifespan="off",
    )
    return StatementServer(config, on_start, statements)


class StatementServer(uvicorn.Server):
    """A server with processes for SQL statements, which end with it."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[str], None], statements: SqlProcesses
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self.statements = statements

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if sig == signal.SIGTERM:
            # A request may not end. The event loop has the wakeup descriptor of signals.
            end_process_after(SIGTERM_SECONDS_MAX)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            self._on_start(f"http://{name}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.statements.close()


class Connections:
    """The state that the connections of a server share."""

    def __init__(self, connections_max: int, header_seconds_max: float) -> None:
        self.connections_max = connections_max
        self.header_seconds_max = header_seconds_max
        # Idle connections, the one that has waited longest first.
        self.waiting: dict[BoundedProtocol, None] = {}

    def protocol(self, *arguments: Any, **options: Any) -> "BoundedProtocol":
        """Returns the protocol of a new connection, for uvicorn."""
        return BoundedProtocol(self, *arguments, **options)


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with a timeout and a maximum size for the headers of a request."""

    def __init__(self, shared: Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._shared = shared
        self._timeout: asyncio.TimerHandle | None = None
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timeout()
        if len(self.connections) > self._shared.connections_max:
            next(iter(self._shared.waiting)).end()

    def data_received(self, data: bytes) -> None:
        # The parser has no maximum of its own.
        self._header_bytes += len(data)
        super().data_received(data)
        is_between = self.cycle is None or self.cycle.response_complete
        is_upgraded = self.transport.get_protocol() is not self
        if not is_between or is_upgraded or self.transport.is_closing():
            self._header_bytes = 0
            self._cancel_timeout()
        elif self._header_bytes > _HEADER_BYTES_MAX:
            self.end()
        else:
            self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timeout()
        super().connection_lost(exc)

    def end(self) -> None:
        """Closes the connection at once."""
        self._cancel_timeout()
        self.transport.abort()

    def _start_timeout(self) -> None:
        if self._timeout is None:
            self._timeout = self.loop.call_later(self._shared.header_seconds_max, self.end)
            self._shared.waiting[self] = None

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        self._shared.waiting.pop(self, None)


def _limit_connections(connections_max: int) -> int:
    """Returns the number of connections that the process may have descriptors for."""
    return max(1, min(connections_max, descriptor_limit() - _BACKLOG - _OTHER_DESCRIPTORS))
