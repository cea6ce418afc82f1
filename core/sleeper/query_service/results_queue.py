"""The port of a queue that a client has its results sent to."""

from collections.abc import Sequence
from typing import Protocol


class ResultsQueue(Protocol):
    """A queue that takes rows. NotFoundError if it is not there."""

    @property
    def message_bytes_max(self) -> int:
        """How large a message may be."""

    def send_all(self, bodies: Sequence[str]) -> None:
        """Adds messages. Durable when it returns."""
