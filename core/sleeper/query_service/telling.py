"""What those hear who listen to a query on a WebSocket (FORMATS: Query results, WebSocket)."""

import json
import logging
from collections.abc import Callable, Sequence

from sleeper.errors import SleeperError
from sleeper.query.destination import Connection, DestinationKind
from sleeper.query.message import QueryMessage
from sleeper.query_service.tracker import QueryState, QueryStatus

logger = logging.getLogger(__name__)

SendFrame = Callable[[Connection, str], None]
"""Sends a text frame. NotFoundError if the connection is closed."""

Location = dict[str, str]


def no_connections(connection: Connection, _frame: str) -> None:
    """For an instance without a WebSocket."""
    raise SleeperError(f"there is no WebSocket at {connection.endpoint}")


def tell_subqueries(message: QueryMessage, sub_query_ids: Sequence[str], send: SendFrame) -> None:
    """Which subqueries there are. Never fails."""
    _tell(
        message,
        {"message": "subqueries", "queryId": message.query_id, "queryIds": list(sub_query_ids)},
        send,
    )


def tell_end(
    message: QueryMessage, status: QueryStatus, locations: Sequence[Location], send: SendFrame
) -> None:
    """How the query ended: the last that is told. Never fails."""
    if status.state is QueryState.COMPLETED:
        frame: dict[str, object] = {
            "message": "completed",
            "queryId": message.query_id,
            "rowCount": status.row_count,
            "locations": list(locations),
        }
    else:
        frame = {"message": "error", "queryId": message.query_id, "error": status.error or ""}
    _tell(message, frame, send)


def _tell(message: QueryMessage, frame: dict[str, object], send: SendFrame) -> None:
    for connection in listeners(message):
        try:
            send(connection, json.dumps(frame))
        except SleeperError as error:
            logger.info("not told of query %s: %s", message.query_id, error)


def listeners(message: QueryMessage) -> list[Connection]:
    """The connections that hear of the query's status, each once."""
    found = [each.connection for each in message.status]
    if message.results.kind is DestinationKind.WEBSOCKET:
        found.append(message.results.connection)
    return list(dict.fromkeys(each for each in found if each is not None))
