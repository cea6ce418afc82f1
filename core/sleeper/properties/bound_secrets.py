"""The kind of a property that lists secrets with the hosts to which they may be sent."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sleeper.properties.value_kind import ValueKind

ANY_HOST = "*"
_HOST = re.compile(r"\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+")
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BoundSecret:
    """A secret, by name or ARN, and one place to which it may be sent.

    Without a host it may be sent nowhere, and without a port to all ports of the host.
    """

    name: str
    host: str | None = None
    port: int | None = None

    def allows(self, host: str, port: int) -> bool:
        """Returns whether the secret may be sent there."""
        is_host = self.host is not None and self.host in (ANY_HOST, host.lower())
        return is_host and self.port in (None, port)

    def __str__(self) -> str:
        if self.host is None:
            return self.name
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}@{host}" + ("" if self.port is None else f":{self.port}")


def _parse(text: str) -> tuple[BoundSecret, ...]:
    return tuple(_parse_one(each.strip()) for each in text.split(",") if each.strip())


def _parse_one(text: str) -> BoundSecret:
    # The name of a secret may contain "@" too.
    name, at, address = text.rpartition("@")
    if not at:
        return BoundSecret(text)
    is_bare = address.startswith("[") and address.endswith("]")
    host, colon, port = (address, "", "") if is_bare else address.rpartition(":")
    if not colon:
        host = address
    if not name or not _HOST.fullmatch(host) or (colon and not _PORT.fullmatch(port)):
        raise ValueError(text)
    return BoundSecret(name, host.strip("[]").lower(), int(port) if colon else None)


def secret_names(secrets: Iterable[BoundSecret]) -> tuple[str, ...]:
    """Returns the names or ARNs, each once."""
    return tuple(dict.fromkeys(each.name for each in secrets))


BOUND_SECRETS: ValueKind[tuple[BoundSecret, ...]] = ValueKind(
    "a comma-separated list of NAME-OR-ARN@HOST[:PORT]",
    _parse,
    lambda secrets: ",".join(map(str, secrets)),
)
