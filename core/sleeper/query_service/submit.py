"""Queries that are sent to the queue for somebody else. Loads no engine."""

import json
import logging
import uuid

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import Instance
from sleeper.jobs.connection import Connection
from sleeper.jobs.query_tracker import ERROR_CHARACTERS_MAX
from sleeper.jobs.queue import QueueName
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.messages.query import (
    CLIENT_QUERY_ID,
    QUERY_TYPE,
    QueryMessage,
    query_message_from_json,
    read_query_id,
    replace_connections,
)
from sleeper.query_service.frames import frame_sender
from sleeper.tables.table_index import find_table


def submit_query(instance: Instance, message: QueryMessage, body: str) -> None:
    """Sends a query's message to the queue. NotFoundError if there is no such table.

    A queue knows who sends, and that would be this process. So a table that is not open to all
    its callers is refused: what they see of it must not depend on the way they ask.
    """
    ref = find_table(instance.tables.index, message.table_name, message.table_id)
    if instance.tables.properties.read(ref.id).get(QUERY_CALLERS):
        raise InvalidRequestError(
            f"table {ref.name!r} is not open to all callers: send the query to the queue yourself"
        )
    instance.jobs.queue(QueueName.QUERY).send(body)


logger = logging.getLogger(__name__)


def submit_live_query(instance: Instance, endpoint: str, connection_id: str, body: str) -> None:
    """Sends a query to the queue, its frames to the connection. A refusal is told there, once.

    The client's id is a name within its connection: some clients use one id for all their
    connections. So the query is tracked under an id of its own.
    """
    connection = Connection(endpoint, connection_id)
    tracked_id = uuid.uuid4().hex
    client_id = read_query_id(body, tracked_id)
    try:
        raw = {**replace_connections(body, connection), "type": QUERY_TYPE}
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
            frame_sender(instance.queries.send_frame)(connection, json.dumps(frame))
        except SleeperError as error:
            logger.info("could not send why query %s is refused: %s", client_id, error)
