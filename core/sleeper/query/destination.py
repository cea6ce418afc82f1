"""Where a query message wants its rows and its status (FORMATS: Messages, `destination`)."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.properties.table import CompressionCodec


class DestinationKind(Enum):
    """What may stand in `resultsPublisherConfig.destination`."""

    S3 = "S3"
    SQS = "SQS"
    WEBSOCKET = "WEBSOCKET"
    NOWHERE = "NoResultsOutput"


@dataclass(frozen=True, slots=True)
class Connection:
    """A WebSocket that is open at a gateway."""

    endpoint: str
    id: str


@dataclass(frozen=True, slots=True)
class ResultsDestination:
    """Where rows go; `bucket` None is the instance's own for results.

    `queue_url` belongs to SQS, `connection` to a WebSocket. `batch_size` is how many rows a
    message has at most, None for the instance's property.
    """

    kind: DestinationKind = DestinationKind.S3
    bucket: str | None = None
    codec: CompressionCodec | None = None
    queue_url: str | None = None
    batch_size: int | None = None
    connection: Connection | None = None


@dataclass(frozen=True, slots=True)
class StatusDestination:
    """Where status goes besides the tracker, which hears of every query."""

    connection: Connection | None = None


def results_destination_from_json(raw: Any) -> ResultsDestination:
    """None is S3, the instance's own bucket. InvalidRequestError says which member is wrong."""
    where = "resultsPublisherConfig"
    if raw is None or raw == {}:
        return ResultsDestination()
    kind = _kind(raw, where, DestinationKind)
    match kind:
        case DestinationKind.S3:
            return ResultsDestination(
                kind, _text(raw, where, "bucket"), _codec(raw.get("compressionCodec"), where)
            )
        case DestinationKind.SQS:
            url = _text(raw, where, "sqsResultsUrl")
            if url is None:
                raise InvalidRequestError(f'"{where}.sqsResultsUrl" is missing')
            return ResultsDestination(kind, queue_url=url, batch_size=_count(raw, where))
        case DestinationKind.WEBSOCKET:
            return ResultsDestination(
                kind, batch_size=_count(raw, where), connection=_connection(raw, where)
            )
    return ResultsDestination(kind)


def results_destination_to_json(destination: ResultsDestination) -> dict[str, Any]:
    """What `results_destination_from_json` reads."""
    codec = destination.codec
    raw = {
        "destination": destination.kind.value,
        "bucket": destination.bucket,
        "compressionCodec": None if codec is None else codec.value,
        "sqsResultsUrl": destination.queue_url,
        "batchSize": destination.batch_size,
        **_connection_to_json(destination.connection),
    }
    return {name: value for name, value in raw.items() if value is not None}


class _StatusKind(Enum):
    TRACKER = "DYNAMODB"
    WEBSOCKET = "WEBSOCKET"


def status_destinations_from_json(raw: Any) -> tuple[StatusDestination, ...]:
    """None is the tracker alone. InvalidRequestError says which member is wrong."""
    where = "statusReportDestinations"
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise InvalidRequestError(f'"{where}" must be a list of objects')
    found = []
    for place, each in enumerate(raw):
        kind = _kind(each, f"{where}[{place}]", _StatusKind)
        is_open = kind is _StatusKind.WEBSOCKET
        found.append(StatusDestination(_connection(each, where) if is_open else None))
    return tuple(found)


def status_destination_to_json(destination: StatusDestination) -> dict[str, Any]:
    """What `status_destinations_from_json` reads, of one."""
    if destination.connection is None:
        return {"destination": _StatusKind.TRACKER.value}
    return {
        "destination": _StatusKind.WEBSOCKET.value,
        **_connection_to_json(destination.connection),
    }


def _kind(raw: Any, where: str, kinds: type[Enum]) -> Any:
    if not isinstance(raw, dict):
        raise InvalidRequestError(f'"{where}" must be an object with a "destination"')
    try:
        return kinds(raw.get("destination"))
    except ValueError:
        known = ", ".join(kind.value for kind in kinds)
        raise InvalidRequestError(
            f'"{where}.destination" is {raw.get("destination")!r}: expected one of {known}'
        ) from None


def _text(raw: dict[str, Any], where: str, member: str) -> str | None:
    value = raw.get(member)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise InvalidRequestError(f'"{where}.{member}" must be text, not {value!r}')
    return value


def _count(raw: dict[str, Any], where: str) -> int | None:
    """Clients that know only text write the number as text."""
    value = raw.get("batchSize")
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidRequestError(
            f'"{where}.batchSize" must be a whole number of 1 or more, not {value!r}'
        )
    return value


def _codec(raw: Any, where: str) -> CompressionCodec | None:
    if raw is None:
        return None
    try:
        return CompressionCodec(str(raw).lower())
    except ValueError:
        known = ", ".join(codec.value for codec in CompressionCodec)
        raise InvalidRequestError(
            f'"{where}.compressionCodec" is {raw!r}: expected one of {known}'
        ) from None


def _connection(raw: dict[str, Any], where: str) -> Connection:
    endpoint, connection = (_text(raw, where, name) for name in ("endpoint", "connectionId"))
    if endpoint is None or connection is None:
        raise InvalidRequestError(
            f'"{where}" goes to a WEBSOCKET: "endpoint" and "connectionId" are needed'
        )
    return Connection(endpoint, connection)


def _connection_to_json(connection: Connection | None) -> dict[str, str]:
    if connection is None:
        return {}
    return {"endpoint": connection.endpoint, "connectionId": connection.id}
