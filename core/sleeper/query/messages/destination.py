"""Destinations of a query's rows and status (docs/formats.md, "Results destinations")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.query_tracker import Connection
from sleeper.properties.table import CompressionCodec
from sleeper.schema.model import is_unicode, whole_number


class DestinationKind(Enum):
    """The values of `resultsPublisherConfig.destination`."""

    S3 = "S3"
    SQS = "SQS"
    WEBSOCKET = "WEBSOCKET"
    NOWHERE = "NoResultsOutput"


# The names of the endpoint and of the id, first ours and then those of gchq/sleeper.
_CONNECTION_NAMES = (
    ("endpoint", "webSocketManagementApiEndpoint"),
    ("connectionId", "webSocketConnectionId"),
)
_BATCH_SIZE_NAMES = ("batchSize", "maxBatchSize")
_BATCH_SIZE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ResultsDestination:
    """The destination of rows.

    `bucket` is for S3, `None` for the instance's results bucket; `queue_url` is for SQS, `None`
    for the instance's default queue; `connection` is for a WebSocket. `batch_size` is the maximum
    number of rows in a message, `None` for the instance's property.
    """

    kind: DestinationKind = DestinationKind.S3
    bucket: str | None = None
    codec: CompressionCodec | None = None
    queue_url: str | None = None
    batch_size: int | None = None
    connection: Connection | None = None


@dataclass(frozen=True, slots=True)
class StatusDestination:
    """A destination of status besides the tracker, which records every query."""

    connection: Connection | None = None


def results_destination_from_json(raw: Any) -> ResultsDestination:
    """Parses a destination; `None` is the instance's bucket. Errors name the wrong member."""
    where = "resultsPublisherConfig"
    if raw is None:
        return ResultsDestination()
    if isinstance(raw, dict) and raw.get("destination") is None:
        raw = {**raw, "destination": DestinationKind.S3.value}
    kind = _kind(raw, where, DestinationKind)
    match kind:
        case DestinationKind.S3:
            return ResultsDestination(
                kind, _text(raw, where, "bucket"), _codec(raw.get("compressionCodec"), where)
            )
        case DestinationKind.SQS:
            url = _text(raw, where, "sqsResultsUrl")
            return ResultsDestination(kind, queue_url=url, batch_size=_count(raw, where))
        case DestinationKind.WEBSOCKET:
            return ResultsDestination(
                kind, batch_size=_count(raw, where), connection=_connection(raw, where)
            )
    return ResultsDestination(kind)


def results_destination_to_json(destination: ResultsDestination) -> dict[str, Any]:
    """Returns the JSON that `results_destination_from_json` parses."""
    codec = destination.codec
    raw = {
        "destination": destination.kind.value,
        "bucket": destination.bucket,
        "compressionCodec": None if codec is None else codec.value,
        "sqsResultsUrl": destination.queue_url,
        "batchSize": destination.batch_size,
        **connection_to_json(destination.connection),
    }
    return {name: value for name, value in raw.items() if value is not None}


class _StatusKind(Enum):
    TRACKER = "DYNAMODB"
    WEBSOCKET = "WEBSOCKET"


def status_destinations_from_json(raw: Any) -> tuple[StatusDestination, ...]:
    """Parses destinations; `None` is the tracker alone. Errors name the wrong member."""
    where = "statusReportDestinations"
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise InvalidRequestError(f'"{where}" must be a list of objects')
    destinations = []
    for place, each in enumerate(raw):
        kind = _kind(each, f"{where}[{place}]", _StatusKind)
        connection = _connection(each, where) if kind is _StatusKind.WEBSOCKET else None
        destinations.append(StatusDestination(connection))
    return tuple(destinations)


def status_destination_to_json(destination: StatusDestination) -> dict[str, Any]:
    """Returns the JSON of one of the destinations that `status_destinations_from_json` parses."""
    if destination.connection is None:
        return {"destination": _StatusKind.TRACKER.value}
    return connection_to_json(destination.connection)


def connection_to_json(connection: Connection | None) -> dict[str, str]:
    """Returns the JSON of a connection as a destination; an empty object without a connection."""
    if connection is None:
        return {}
    return {
        "destination": DestinationKind.WEBSOCKET.value,
        "endpoint": connection.endpoint,
        "connectionId": connection.id,
    }


def remove_connection(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON of a destination without its connection."""
    names = {name for each in _CONNECTION_NAMES for name in each}
    return {name: value for name, value in raw.items() if name not in names}


def _kind(raw: Any, where: str, kinds: type[Enum]) -> Any:
    if not isinstance(raw, dict):
        raise InvalidRequestError(f'"{where}" must be an object with a "destination"')
    try:
        return kinds(raw.get("destination"))
    except ValueError:
        known = ", ".join(kind.value for kind in kinds)
        raise InvalidRequestError(
            f'"{where}.destination" is {raw.get("destination")!r:.200} (expected one of {known})'
        ) from None


def _text(raw: dict[str, Any], where: str, member: str) -> str | None:
    value = raw.get(member)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not is_unicode(value):
        raise InvalidRequestError(f'"{where}.{member}" must be text, not {value!r:.200}')
    return value


def _count(raw: dict[str, Any], where: str) -> int | None:
    name = next((name for name in _BATCH_SIZE_NAMES if raw.get(name) is not None), None)
    if name is None:
        return None
    value = whole_number(raw[name])
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _BATCH_SIZE_MAX:
        raise InvalidRequestError(
            f'"{where}.{name}" must be a whole number of 1 or more, not {value!r:.200}'
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
            f'"{where}.compressionCodec" is {raw!r:.200} (expected one of {known})'
        ) from None


def _connection(raw: dict[str, Any], where: str) -> Connection:
    endpoint, connection = (_first_text(raw, where, names) for names in _CONNECTION_NAMES)
    if endpoint is None or connection is None:
        raise InvalidRequestError(
            f'"{where}" is a WEBSOCKET without an "endpoint" and a "connectionId"'
        )
    return Connection(endpoint, connection)


def _first_text(raw: dict[str, Any], where: str, names: Sequence[str]) -> str | None:
    """Returns the member under the first of its names that is present."""
    return next((text for name in names if (text := _text(raw, where, name))), None)
