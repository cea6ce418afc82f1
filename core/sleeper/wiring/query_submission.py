"""Queries that are sent to the queue for somebody else. Loads no engine."""

from sleeper.errors import InvalidRequestError
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.message import QueryMessage
from sleeper.tables.table_index import find_table
from sleeper.wiring.instance import Instance
from sleeper.wiring.queue_name import QueueName


def submit_query(instance: Instance, message: QueryMessage, body: str) -> None:
    """Sends a query's message to the queue. NotFoundError if there is no such table.

    A queue knows who sends, and that would be this process. So a table that is not open to all
    its callers is refused: what they see of it must not depend on the way they ask.
    """
    ref = find_table(instance.tables, message.table_name, message.table_id)
    if instance.table_properties.read(ref.id).get(QUERY_CALLERS):
        raise InvalidRequestError(
            f"table {ref.name!r} is not open to all callers: send the query to the queue yourself"
        )
    instance.queue(QueueName.QUERY).send(body)
