"""What callers of a server may take, all together and each."""

from dataclasses import dataclass

from sleeper.instance import Instance
from sleeper.properties.engine import (
    QUERY_SECONDS_MAX,
    SERVE_BODY_BYTES_MAX,
    SERVE_CONNECTIONS_MAX,
    SERVE_HEADER_SECONDS_MAX,
    SERVE_QUERIES_MAX,
    SERVE_READ_SECONDS_MAX,
    SERVE_SECONDS_MAX,
    SERVE_WAITING_MAX,
)


@dataclass(frozen=True, slots=True)
class Terms:
    """`answer_bytes_max` None streams answers, however large; else they are whole, or refused.

    `seconds_set_by` names what bounds the time of a query. On a WebSocket no query is silent
    for longer than `keep_alive_seconds`. A client must take each piece of an answer within
    `read_seconds_max`, and send the headers of a request within `header_seconds_max`.
    """

    queries_max: int = 16
    waiting_max: int = 256
    seconds_max: int = 300
    seconds_set_by: str = SERVE_SECONDS_MAX.name
    body_bytes_max: int = 1024**2
    answer_bytes_max: int | None = None
    keep_alive_seconds: float = 15.0
    read_seconds_max: float = 30.0
    connections_max: int = 500
    header_seconds_max: float = 10.0


def terms_of(instance: Instance) -> Terms:
    """What the instance's properties say."""
    properties = instance.properties()
    limits = [(properties.get(p), p.name) for p in (SERVE_SECONDS_MAX, QUERY_SECONDS_MAX)]
    seconds, name = min((limit for limit in limits if limit[0]), default=limits[0])
    return Terms(
        properties.get(SERVE_QUERIES_MAX),
        properties.get(SERVE_WAITING_MAX),
        seconds,
        name,
        properties.get(SERVE_BODY_BYTES_MAX),
        read_seconds_max=properties.get(SERVE_READ_SECONDS_MAX),
        connections_max=properties.get(SERVE_CONNECTIONS_MAX),
        header_seconds_max=properties.get(SERVE_HEADER_SECONDS_MAX),
    )
