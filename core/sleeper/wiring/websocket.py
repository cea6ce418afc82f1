"""Queries that come over a WebSocket of API Gateway. Loads no engine."""

import json
import logging
import uuid

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.query.destination import Connection
from sleeper.query.message import QUERY_TYPE, query_id_of, query_message_from_json
from sleeper.query.websocket_message import with_connection
from sleeper.wiring.instance import Instance
from sleeper.wiring.query_submission import submit_query

logger = logging.getLogger(__name__)


def submit_live_query(instance: Instance, endpoint: str, connection_id: str, body: str) -> None:
    """Sends a query to the queue, its frames to the connection. A refusal is told there, once."""
    connection = Connection(endpoint, connection_id)
    query_id = query_id_of(body, uuid.uuid4().hex)
    try:
        raw = {**with_connection(body, connection, query_id), "type": QUERY_TYPE}
        message = query_message_from_json(raw, query_id)
        submit_query(instance, message, json.dumps(raw))
    except (InvalidRequestError, NotFoundError) as refusal:
        frame = {"message": "error", "queryId": query_id, "error": str(refusal)}
        try:
            instance.send_frame(connection, json.dumps(frame))
        except SleeperError as error:
            logger.info("not told that query %s is refused: %s", query_id, error)
