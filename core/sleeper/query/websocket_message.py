"""Query messages that come over a WebSocket: results and status go back there."""

import json
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.query.destination import Connection, DestinationKind

_RESULTS = "resultsPublisherConfig"
_STATUS = "statusReportDestinations"


def with_connection(body: str, connection: Connection, query_id: str) -> dict[str, Any]:
    """The message as it is sent on: what it says of connections is replaced by this one.

    Results that are meant for nowhere else go there. The id stands in for a missing one. The
    rest is not checked. InvalidRequestError if it is no JSON object.
    """
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"query message is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError("query message must be a JSON object")
    there = {
        "destination": DestinationKind.WEBSOCKET.value,
        "endpoint": connection.endpoint,
        "connectionId": connection.id,
    }
    results = raw.get(_RESULTS) or {}
    if isinstance(results, dict) and results.get("destination") in {None, "WEBSOCKET"}:
        raw[_RESULTS] = {**results, **there}
    status = raw.get(_STATUS) or []
    if isinstance(status, list):
        raw[_STATUS] = [*(each for each in status if not _is_connection(each)), there]
    raw["queryId"] = raw.get("queryId") or query_id
    return raw


def _is_connection(raw: object) -> bool:
    return isinstance(raw, dict) and raw.get("destination") == DestinationKind.WEBSOCKET.value
