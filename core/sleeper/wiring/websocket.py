"""Queries that come over a WebSocket of API Gateway. Loads no engine."""

import json
import logging
import uuid

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.query.destination import Connection
from sleeper.query.message import (
    CLIENT_QUERY_ID,
    QUERY_TYPE,
    query_id_of,
    query_message_from_json,
)
from sleeper.query.websocket_message import with_connection
from sleeper.query_service.tracker import ERROR_CHARACTERS_MAX
from sleeper.wiring.instance import Instance
from sleeper.wiring.query_submission import submit_query

logger = logging.getLogger(__name__)


def submit_live_query(instance: Instance, endpoint: str, connection_id: str, body: str) -> None:
    """Sends a query to the queue, its frames to the connection. A refusal is told there, once.

    The client's id is a name within its connection: some clients use one id for all their
    connections. So the query is tracked under an id of its own.
    """
    connection = Connection(endpoint, connection_id)
    tracked_id = uuid.uuid4().hex
    client_id = query_id_of(body, tracked_id)
    try:
        raw = {**with_connection(body, connection), "type": QUERY_TYPE}
        message = query_message_from_json(raw, client_id)
        sent = {**raw, "queryId": tracked_id, CLIENT_QUERY_ID: client_id}
        submit_query(instance, message, json.dumps(sent))
    except (InvalidRequestError, NotFoundError) as refusal:
        frame = {
            "message": "error",
            "queryId": client_id,
            "error": str(refusal)[:ERROR_CHARACTERS_MAX],
        }
        try:
            instance.send_frame(connection, json.dumps(frame))
        except SleeperError as error:
            logger.info("could not send why query %s is refused: %s", client_id, error)
