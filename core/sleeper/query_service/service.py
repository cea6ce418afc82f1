"""Queries that come as messages: planned and sent to workers, or run where they landed.

Loads no engine before a query runs here.
"""

import json
import uuid

from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UserCodeError,
)
from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from sleeper.processing.restriction import find_chain_restriction
from sleeper.properties.engine import QUERY_BYTES_MAX, QUERY_HOLD_SECONDS, QUEUE_RECEIVES_MAX
from sleeper.properties.instance import QUERY_RESULTS_DAYS, QUERY_TRACKER_DAYS
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.messages.destination import DestinationKind, ResultsDestination
from sleeper.query.messages.query import QueryMessage, parse_query_message
from sleeper.query_service.dispatch import Dispatch, DispatchTable, dispatch_query, refuse_query
from sleeper.query_service.frames import frame_sender, results_folder
from sleeper.query_service.plan import Subquery
from sleeper.reports.queries import QueryReport, gather_query
from sleeper.tables.table_index import find_table
from sleeper.user_code.name import CodeKind

FINAL_ERRORS: tuple[type[SleeperError], ...] = (
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    DataError,
    UserCodeError,
)
"""Another try of a query would end alike."""
_DAY_MS = 86_400_000


def run_query_message(instance: Instance, message: Message) -> int:
    """Plans the query of a message; how many rows it gave if it was run here.

    What can never succeed is FAILED in the tracker; anything else is raised, and the message
    may come again.
    """
    subquery = plan_query_message(instance, message)
    if subquery is None:
        return 0
    from sleeper.query_service.leaf_service import run_subquery

    return run_subquery(instance, subquery.message, message.receives, held=False)


def plan_query_message(instance: Instance, message: Message) -> Subquery | None:
    """Plans the query and sends its subqueries; a single one is returned, for who runs it.

    QueryIdTakenError, each time, if its id is another query's.
    """
    by = _dispatch(instance, message.sender)
    tries_max = instance.properties().get(QUEUE_RECEIVES_MAX)
    try:
        if message.receives > tries_max:
            raise InvalidRequestError(f"given up after {tries_max} tries, which told nothing")
        return dispatch_query(message.body, message.message_id, by)
    except FINAL_ERRORS as error:
        refuse_query(message.body, message.message_id, str(error), by)
    except Exception as error:
        if message.receives < tries_max:
            raise
        reason = f"given up after {message.receives} tries: {type(error).__name__}: {error}"
        refuse_query(message.body, message.message_id, reason, by)
    return None


def send_query(instance: Instance, body: str) -> str:
    """Sends a query's message to the instance's queue; the query's id.

    InvalidRequestError if it is none, whatever the table.
    """
    message = parse_query_message(body, uuid.uuid4().hex)
    raw = {**json.loads(body), "queryId": message.query_id}
    instance.jobs.queue(QueueName.QUERY).send(json.dumps(raw))
    return message.query_id


def show_query(instance: Instance, query_id: str) -> tuple[QueryReport, str | None]:
    """What became of a query, and where its rows are if they are in the instance's own place."""
    report = gather_query(instance.queries.tracker(), query_id)
    root, folder = instance.queries.results_root(None), results_folder(query_id)
    is_there = next(root.list_objects(f"{folder}/"), None) is not None
    return report, root.url_of(folder) if is_there else None


def remove_old_queries(instance: Instance) -> None:
    """Forgets queries, and deletes results, that a folder's instance has kept long enough."""
    properties, now = instance.properties(), instance.clock()
    instance.queries.tracker().remove_before(now - properties.get(QUERY_TRACKER_DAYS) * _DAY_MS)
    before = now - properties.get(QUERY_RESULTS_DAYS) * _DAY_MS
    root = instance.queries.results_root(None)
    root.delete([each.path for each in root.list_objects("") if each.modified_ms < before])


def _dispatch(instance: Instance, caller: str) -> Dispatch:
    def table_of(message: QueryMessage) -> DispatchTable:
        ref = find_table(instance.tables.index, message.table_name, message.table_id)
        callers = instance.tables.properties.read(ref.id).get(QUERY_CALLERS)
        restriction = find_chain_restriction(callers, (caller, *message.requesters), ref.name)
        return DispatchTable(ref.id, instance.tables.state(ref.id), restriction)

    def check_iterator(name: str) -> None:
        instance.code.registry.find(CodeKind.ITERATOR, name)

    def check_destination(destination: ResultsDestination) -> None:
        if destination.bucket is not None:
            instance.queries.results_root(destination.bucket)
        if destination.kind is DestinationKind.SQS:
            instance.queries.results_queue(destination.queue_url)

    properties = instance.properties()
    return Dispatch(
        tracker=instance.queries.tracker(),
        find_table=table_of,
        check_iterator=check_iterator,
        check_destination=check_destination,
        send_subqueries=lambda bodies: instance.jobs.queue(QueueName.LEAF_QUERY).send_all(bodies),
        send_frame=frame_sender(instance.queries.send_frame),
        hold_seconds=properties.get(QUERY_HOLD_SECONDS),
        clock=instance.clock,
        bytes_max=properties.get(QUERY_BYTES_MAX),
    )
