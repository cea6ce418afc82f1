"""WebSocket connections of an API gateway."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connection:
    """An open WebSocket of a gateway."""

    endpoint: str
    id: str


SendFrame = Callable[[Connection, str], None]
"""Sends a text frame. NotFoundError if the connection is closed."""
