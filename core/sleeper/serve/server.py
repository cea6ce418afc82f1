"""Runs the server of `sleeper serve`."""

import socket
import threading
from collections.abc import Callable
from typing import Any, cast

import uvicorn

from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.properties.engine import QUERY_MEMORY_BYTES
from sleeper.serve.access import Access, token_for
from sleeper.serve.application import make_application
from sleeper.serve.connections import BACKLOG, Connections, connections_within_descriptors
from sleeper.serve.sql_processes import SqlProcesses
from sleeper.serve.terms import Terms, terms_of

_STOPPING_SECONDS = 5
# What a process that runs a statement takes beside what its statement is counted.
_ENGINE_BYTES = 512 * 1024**2
# A reader who takes his time is not gone: his answers wait in his socket.
_PONG_SECONDS = 120.0


def serve(
    instance: Instance,
    host: str,
    port: int,
    token: str | None,
    started: Callable[[str], None] = lambda _url: None,
) -> None:
    """Answers until it is interrupted. Port 0 is any that is free.

    InvalidRequestError if others can reach the host and there is no token. `started` is told
    the URL once requests are taken.
    """
    server = make_server(instance, host, port, token, terms_of(instance), started)
    # Loading the engine takes a second, which the first statement need not wait for.
    threading.Thread(target=server.statements.warm, daemon=True).start()
    try:
        server.run()
    except SystemExit as error:  # uvicorn's, when it cannot listen
        raise UnavailableError(f"cannot listen on {host} port {port}: is it in use?") from error


def make_server(
    instance: Instance,
    host: str,
    port: int,
    token: str | None,
    terms: Terms,
    started: Callable[[str], None],
) -> "StatementServer":
    """A server that does not run yet."""
    memory_bytes = 2 * instance.properties().get(QUERY_MEMORY_BYTES) + _ENGINE_BYTES
    statements = SqlProcesses(instance.where, memory_bytes)
    application = make_application(instance, terms, open_statement=statements.open)
    connections = Connections(
        connections_within_descriptors(terms.connections_max), terms.header_seconds_max
    )
    config = uvicorn.Config(
        Access(application, token_for(host, token)),
        host=host,
        port=port,
        http=cast(Any, connections.protocol),
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        ws_max_size=terms.body_bytes_max,
        ws_ping_timeout=_PONG_SECONDS,
        # It would take most of the processor that a query takes.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_STOPPING_SECONDS,
        lifespan="off",
    )
    return StatementServer(config, started, statements)


class StatementServer(uvicorn.Server):
    """A server with processes for SQL statements, which end with it."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[str], None], statements: SqlProcesses
    ) -> None:
        super().__init__(config)
        self._tell_started = started
        self.statements = statements

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            self._tell_started(f"http://{name}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.statements.close()
