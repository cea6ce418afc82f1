"""The rule of connections to other machines: TLS that verifies the server.

Only a definition with `insecure=true` may connect without it. Connections that stay on this
machine are exempt. Each kind of connection translates the rule into the settings of its client.
"""

import ipaddress
from collections.abc import Iterable, Mapping

from sleeper.errors import InvalidRequestError

INSECURE = "insecure"
"""The option, or the parameter of a database's URL, that allows an insecure connection."""

_FLAGS = {"true": True, "false": False}


def is_loopback(host: str) -> bool:
    """Returns whether a host name denotes this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_host(address: str) -> str:
    """Returns the host of `HOST`, `HOST:PORT` or `[HOST]:PORT`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    host, colon, _ = address.rpartition(":")
    return host if colon and ":" not in host else address


def read_insecure(where: str, options: Mapping[str, str]) -> bool:
    """Returns the value of the option. InvalidRequestError if it is neither true nor false."""
    text = options.get(INSECURE, "false")
    if text not in _FLAGS:
        raise InvalidRequestError(f"{where}: {INSECURE} is {text!r} (expected true or false)")
    return _FLAGS[text]


def must_verify(hosts: Iterable[str], is_insecure: bool) -> bool:
    """Returns whether a connection to the hosts needs TLS that verifies the server."""
    return not is_insecure and not all(map(is_loopback, hosts))


def insecure_connection(
    where: str, hosts: Iterable[str], setting: str, expected: str
) -> InvalidRequestError:
    """Returns the error of a `setting` that `must_verify` forbids."""
    host = next(each for each in hosts if not is_loopback(each))
    return InvalidRequestError(
        f"{where}: {setting} connects to {host[:100]} without TLS that verifies the server "
        f"(expected {expected}, or {INSECURE}=true)"
    )
