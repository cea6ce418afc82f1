"""What systems keep beside the tables of an open instance, opened on first use."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError
from sleeper.systems import load, systems


class SystemPort(Protocol):
    """The port of a system. Safe for threads."""

    def vacuum(self) -> bool:
        """Removes the remains of deleted data. False if a reader keeps some."""

    def close(self) -> None:
        """Closes it. Idempotent."""


class SystemPorts:
    """The ports of the systems of one instance, by the name of the system. Safe for threads.

    `references` are those of the functions that open a port, which `open_port` calls.
    """

    def __init__(
        self, references: Mapping[str, str], open_port: Callable[[Callable[..., Any]], SystemPort]
    ) -> None:
        self._references = references
        self._open = open_port
        self._lock = threading.Lock()
        self._ports: dict[str, SystemPort] = {}

    def get(self, name: str) -> Any:
        """Returns the port of a system. InvalidRequestError if this instance cannot have it."""
        with self._lock:
            if name not in self._ports:
                if name not in self._references:
                    raise InvalidRequestError(f"system {name} has no port in this instance")
                self._ports[name] = self._open(load(self._references[name]))
            return self._ports[name]

    def vacuum(self) -> bool:
        """Removes the remains of deleted data of all systems. False if a reader keeps some."""
        return all(self.get(name).vacuum() for name in self._references)

    def close(self) -> None:
        """Closes the ports. Idempotent."""
        with self._lock, ExitStack() as stack:
            # All are closed, also if one of them fails.
            for port in self._ports.values():
                stack.callback(port.close)


def open_enricher(clock: Clock) -> Any:
    """Returns the enricher of a system: `open` is `sleeper.instance.Instance.open_enrichment`."""
    (reference,) = (each.enricher for each in systems() if each.enricher is not None)
    return load(reference)(clock)
