"""HTTP connections: how many there are, and how long they wait for a request.

A client that connects and sends nothing, or half a request, holds a descriptor. So a request's
headers have a timeout, and beyond the most connections the one that has waited longest is closed.
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 128
"""Connections that the system accepts for the server at once."""
# Data files, the instance's databases, pipes of statements.
_OTHER_DESCRIPTORS = 512


class Connections:
    """What the connections of a server share."""

    def __init__(self, connections_max: int, header_seconds_max: float) -> None:
        self.connections_max = connections_max
        self.header_seconds_max = header_seconds_max
        # In the order in which they began to wait.
        self.waiting: dict[BoundedProtocol, None] = {}

    def protocol(self, *arguments: Any, **options: Any) -> "BoundedProtocol":
        """Makes the protocol of a connection, as uvicorn calls for."""
        return BoundedProtocol(self, *arguments, **options)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose clients must send a request's headers in time."""

    def __init__(self, shared: Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._shared = shared
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self._shared.connections_max:
            next(iter(self._shared.waiting)).end()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_between = self.cycle is None or self.cycle.response_complete
        is_upgraded = self.transport.get_protocol() is not self
        if is_between and not is_upgraded and not self.transport.is_closing():
            self._wait()
        else:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def end(self) -> None:
        """Closes the connection, whatever has been sent."""
        self._go_on()
        self.transport.abort()

    def _wait(self) -> None:
        if self._timeout is None:
            self._timeout = self.loop.call_later(self._shared.header_seconds_max, self.end)
            self._shared.waiting[self] = None

    def _go_on(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        self._shared.waiting.pop(self, None)


def connections_within_descriptors(connections_max: int) -> int:
    """So many connections, or fewer if the process may not have the descriptors.

    Raises the process's soft limit as far as it is needed and allowed.
    """
    needed = connections_max + BACKLOG + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return connections_max
    return max(1, min(connections_max, soft - BACKLOG - _OTHER_DESCRIPTORS))
