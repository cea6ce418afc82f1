"""Destinations of a query's rows and status (docs/formats.md, "Results destinations")."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from sleeper.jobs.query_tracker import Connection
from sleeper.json_codec import Conversion, JsonCodec, Member, MismatchError, camel_case
from sleeper.lenient_json import OptionalStrictText, to_whole_number
from sleeper.properties.table import OTHER_CODEC_NAMES, CompressionCodec


class DestinationKind(Enum):
    """The values of `resultsPublisherConfig.destination`."""

    S3 = "S3"
    SQS = "SQS"
    WEBSOCKET = "WEBSOCKET"
    NOWHERE = "NoResultsOutput"


class StatusKind(Enum):
    """The values of `destination` of `statusReportDestinations`."""

    TRACKER = "DYNAMODB"
    WEBSOCKET = "WEBSOCKET"


_WEBSOCKET = DestinationKind.WEBSOCKET.value
# The names of the endpoint and of the id, each with that of gchq/sleeper.
_CONNECTION_NAMES = (
    "endpoint",
    "webSocketManagementApiEndpoint",
    "connectionId",
    "webSocketConnectionId",
)
_BATCH_SIZE_NAMES = ("batchSize", "maxBatchSize")
_BATCH_SIZE_MAX = 2**31 - 1
_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "S3": ("bucket", "compressionCodec"),
    "SQS": ("sqsResultsUrl", *_BATCH_SIZE_NAMES),
    "WEBSOCKET": (*_CONNECTION_NAMES, *_BATCH_SIZE_NAMES),
}
"""The members that each destination reads; others are ignored."""
_CONNECTIONS = JsonCodec(Connection)


def connection_to_json(connection: Connection | None) -> dict[str, Any]:
    """Returns the JSON of a connection as a destination; an empty object without a connection."""
    if connection is None:
        return {}
    return {"destination": _WEBSOCKET, **_CONNECTIONS.to_json(connection)}


def _to_connection(raw: dict[str, Any]) -> Connection | None:
    return _CONNECTIONS.decode(raw) if raw.get("destination") == _WEBSOCKET else None


def _to_batch_size(raw: Any) -> int:
    size = to_whole_number(raw)
    if not 1 <= size <= _BATCH_SIZE_MAX:
        raise MismatchError(raw, "an integer of 1 or more")
    return size


def _to_codec(raw: Any) -> CompressionCodec:
    try:
        name = str(raw).lower()
        return OTHER_CODEC_NAMES.get(name) or CompressionCodec(name)
    except ValueError:
        names = ", ".join(codec.value for codec in CompressionCodec)
        raise MismatchError(raw, f"one of {names}") from None


_ToConnection = Annotated[
    Connection | None, Member(flat=True), Conversion(_to_connection, connection_to_json)
]


@dataclass(frozen=True, slots=True)
class ResultsDestination:
    """The destination of rows.

    `bucket` is for S3, `None` for the instance's results bucket; `queue_url` is for SQS, `None`
    for the instance's default queue; `connection` is for a WebSocket. `batch_size` is the maximum
    number of rows in a message, `None` for the instance's property.
    """

    kind: Annotated[DestinationKind, Member("destination")] = DestinationKind.S3
    bucket: OptionalStrictText = None
    codec: Annotated[
        CompressionCodec | None,
        Member("compressionCodec", optional=True),
        Conversion(_to_codec, lambda codec: codec.value),
    ] = None
    queue_url: Annotated[OptionalStrictText, Member("sqsResultsUrl", optional=True)] = None
    batch_size: Annotated[
        int | None,
        Member(other_names=_BATCH_SIZE_NAMES[1:], optional=True),
        Conversion(_to_batch_size),
    ] = None
    connection: _ToConnection = None


_RESULTS = JsonCodec(ResultsDestination, camel_case)


def _to_results(raw: Any) -> ResultsDestination:
    if not isinstance(raw, dict):
        raise MismatchError(raw, 'an object with a "destination"')
    destination = raw.get("destination")
    destination = DestinationKind.S3.value if destination is None else destination
    names = _MEMBERS.get(destination, ()) if isinstance(destination, str) else ()
    members = {name: raw[name] for name in names if name in raw}
    return _RESULTS.decode({"destination": destination, **members})


RESULTS_DESTINATION = Conversion(_to_results, _RESULTS.to_json)


@dataclass(frozen=True, slots=True)
class StatusDestination:
    """A destination of status. The tracker records every query in any case."""

    kind: Annotated[StatusKind, Member("destination", optional=True)] = StatusKind.TRACKER
    connection: _ToConnection = None


def remove_connection(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON of a destination without its connection."""
    return {name: value for name, value in raw.items() if name not in _CONNECTION_NAMES}
