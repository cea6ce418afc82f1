"""WebSocket connections of clients, as an API gateway names them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connection:
    """A WebSocket that is open at a gateway."""

    endpoint: str
    id: str


SendFrame = Callable[[Connection, str], None]
"""Sends a text frame. NotFoundError if the connection is closed."""
