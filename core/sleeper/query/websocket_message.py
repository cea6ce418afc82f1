"""Query messages that come over a WebSocket: results and status go back there."""

from typing import Any

from sleeper.query.destination import (
    Connection,
    DestinationKind,
    connection_to_json,
    without_connection,
)
from sleeper.query.message import json_object

_RESULTS = "resultsPublisherConfig"
_STATUS = "statusReportDestinations"
_WEBSOCKET = DestinationKind.WEBSOCKET.value


def with_connection(body: str, connection: Connection) -> dict[str, Any]:
    """The message as it is sent on: the connections that it names are replaced by this one.

    Results without another destination go there. The rest is not checked.
    InvalidRequestError if it is no JSON object.
    """
    raw = json_object(body)
    there = connection_to_json(connection)
    results = raw.get(_RESULTS) or {}
    if isinstance(results, dict) and results.get("destination") in (None, _WEBSOCKET):
        raw[_RESULTS] = {**without_connection(results), **there}
    status = raw.get(_STATUS) or []
    if isinstance(status, list):
        raw[_STATUS] = [*(each for each in status if not _is_connection(each)), there]
    return raw


def _is_connection(raw: object) -> bool:
    return isinstance(raw, dict) and raw.get("destination") == _WEBSOCKET
