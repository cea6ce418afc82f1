"""Masters of Spark's own cluster manager: URLs such as spark://HOST:7077, or with several hosts."""

import socket

from sleeper.errors import UnavailableError

_SCHEME = "spark://"
_CONNECT_SECONDS = 10


def check_master(master: str) -> None:
    """Raises UnavailableError if the URL has masters, and none accepts a connection.

    Spark would retry for a minute, and then report that its context was stopped.
    """
    if not master.startswith(_SCHEME):
        return
    reasons = []
    for address in master.removeprefix(_SCHEME).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return
    raise UnavailableError(f"cannot connect to the master {master}: {'; '.join(reasons)}")
