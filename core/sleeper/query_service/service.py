"""Queries as messages: submitted, planned, and run here or by other workers.

Loads no engine before a query runs here.
"""

import json
import logging
import re
import uuid
from collections.abc import Collection

from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UserCodeError,
)
from sleeper.instance import Instance
from sleeper.jobs.query_tracker import ERROR_CHARACTERS_MAX, Connection, QueryIdTakenError
from sleeper.jobs.queue import Message, QueueName
from sleeper.lenient_json import parse_message_object
from sleeper.processing.restriction import find_chain_restriction
from sleeper.properties.deployed import (
    QUERY_RESULTS_BUCKET,
    QUERY_RESULTS_QUEUE_URL,
    QUERY_ROLE,
)
from sleeper.properties.instance import (
    QUERY_BYTES_MAX,
    QUERY_HOLD_SECONDS,
    QUERY_RESULTS_DAYS,
    QUERY_RESULTS_SHARED,
    QUERY_TRACKER_DAYS,
    QUEUE_RECEIVES_MAX,
)
from sleeper.properties.table import QUERY_CALLERS
from sleeper.properties.values import InstanceProperties
from sleeper.query.messages.destination import DestinationKind, ResultsDestination
from sleeper.query.messages.query import (
    CLIENT_QUERY_ID,
    QUERY_TYPE,
    QueryMessage,
    parse_query_message,
    query_message_from_json,
    read_query_id,
    replace_connections,
)
from sleeper.query_service.dispatch import (
    Dispatcher,
    DispatchTable,
    dispatch_query,
    is_refused,
    refuse_query,
    refuse_taken_id,
)
from sleeper.query_service.frames import frame_sender, results_folder, results_path
from sleeper.query_service.plan import Subquery
from sleeper.reports.queries import QueryReport, gather_query
from sleeper.tables import find_table
from sleeper.user_code.wheel import CodeKind

logger = logging.getLogger(__name__)

FINAL_ERRORS: tuple[type[SleeperError], ...] = (
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    DataError,
    UserCodeError,
)
"""Errors that another attempt of a query would repeat."""
_DAY_MS = 86_400_000
_FILE = re.compile(r"[^/]+\.parquet")


def run_query_message(instance: Instance, message: Message, tries_min: int = 1) -> int:
    """Plans the query of a message, and returns its number of rows if it ran here, else 0.

    A query that cannot succeed, or not within the tries of the queue, at least `tries_min`, is
    FAILED in the tracker. Raises all other errors, and the message returns to its queue.
    """
    subquery = plan_query_message(instance, message, tries_min)
    if subquery is None:
        return 0
    from sleeper.query_service.run import run_subquery

    return run_subquery(instance, subquery.message, message.receives, tries_min, held=False)


def run_queued_query(instance: Instance, message: Message, _task_id: str) -> tuple[int, int]:
    """Plans the query of a message. Returns the numbers of rows read and written."""
    return run_query_message(instance, message), 0


def plan_query_message(instance: Instance, message: Message, tries_min: int = 1) -> Subquery | None:
    """Plans the query and sends its subqueries; returns a single one for the caller to run.

    QueryIdTakenError, for each delivery, if its id belongs to another query.
    """
    dispatcher = _dispatcher(instance, message.sender)
    tries_max = max(tries_min, instance.properties().get(QUEUE_RECEIVES_MAX))
    body, message_id = message.body, message.message_id
    if message.receives > 1 and is_refused(body, message_id, instance.queries.tracker()):
        raise QueryIdTakenError(read_query_id(body, message_id))
    try:
        return _dispatch(message, dispatcher, tries_max)
    except QueryIdTakenError as taken:
        refuse_taken_id(body, message_id, str(taken), dispatcher)
        raise


def _dispatch(message: Message, dispatcher: Dispatcher, tries_max: int) -> Subquery | None:
    try:
        if message.receives > tries_max:
            raise InvalidRequestError(f"gave up after {tries_max} tries without a result")
        return dispatch_query(message.body, message.message_id, dispatcher)
    except QueryIdTakenError:
        raise
    except FINAL_ERRORS as error:
        refuse_query(message.body, message.message_id, str(error), dispatcher)
    except Exception as error:
        if message.receives < tries_max:
            raise
        reason = f"gave up after {message.receives} tries: {type(error).__name__}: {error}"
        refuse_query(message.body, message.message_id, reason, dispatcher)
    return None


def send_query(instance: Instance, body: str) -> str:
    """Sends a query's message to the instance's queue, and returns the query's id.

    InvalidRequestError if it is not a query message. Does not check the table.
    """
    message = parse_query_message(body, uuid.uuid4().hex)
    raw = {**parse_message_object(body, "query message"), "queryId": message.query_id}
    instance.jobs.queue(QueueName.QUERY).send(json.dumps(raw))
    return message.query_id


def submit_query(instance: Instance, message: QueryMessage, body: str) -> None:
    """Sends a query's message to the queue. NotFoundError if its table does not exist.

    The queue's sender is this process rather than the caller, so a caller's restrictions would
    not apply: InvalidRequestError if the table restricts its callers.
    """
    ref = find_table(instance.tables.index, message.table_name, message.table_id)
    if instance.tables.properties.read(ref.id).get(QUERY_CALLERS):
        raise InvalidRequestError(
            f"table {ref.name!r} restricts its callers: send the query to the query queue directly"
        )
    instance.jobs.queue(QueueName.QUERY).send(body)


def submit_live_query(instance: Instance, endpoint: str, connection_id: str, body: str) -> None:
    """Sends a query to the queue, and its frames, or an error frame, to the connection.

    Some clients use one query id for several connections, so the query is tracked under another
    id, and the client's id names it only within its connection.
    """
    connection = Connection(endpoint, connection_id)
    tracked_id = uuid.uuid4().hex
    client_id = read_query_id(body, tracked_id)
    try:
        raw = {**replace_connections(body, connection), "type": QUERY_TYPE}
        message = query_message_from_json(raw, client_id)
        sent = {**raw, "queryId": tracked_id, CLIENT_QUERY_ID: client_id}
        submit_query(instance, message, json.dumps(sent))
    except (InvalidRequestError, NotFoundError) as reason:
        frame = {
            "message": "error",
            "queryId": client_id,
            "error": str(reason)[:ERROR_CHARACTERS_MAX],
        }
        try:
            frame_sender(instance.queries.send_frame)(connection, json.dumps(frame))
        except SleeperError as error:
            logger.info("could not send error frame of query %s: %s", client_id, error)


def show_query(instance: Instance, query_id: str) -> tuple[QueryReport, str | None]:
    """Returns the report of a query, and the URL of its rows in the instance's results root."""
    report = gather_query(instance.queries.tracker(), query_id)
    root, folder = instance.queries.results_root(None), results_folder(query_id)
    has_rows = next(root.list_objects(f"{folder}/"), None) is not None
    return report, root.url_of(folder) if has_rows else None


def remove_old_queries(instance: Instance) -> None:
    """Removes queries and results of a folder instance that are older than its properties allow."""
    properties, now = instance.properties(), instance.clock()
    instance.queries.tracker().remove_before(now - properties.get(QUERY_TRACKER_DAYS) * _DAY_MS)
    before = now - properties.get(QUERY_RESULTS_DAYS) * _DAY_MS
    root = instance.queries.results_root(None)
    root.delete([each.path for each in root.list_objects("") if each.modified_ms < before])


def _check_results_are_private(
    destination: ResultsDestination, table_name: str, properties: InstanceProperties
) -> None:
    """Raises InvalidRequestError if the clients of the role of queries could read the results."""
    own_places = {
        DestinationKind.S3: (None, properties.get(QUERY_RESULTS_BUCKET)),
        DestinationKind.SQS: (None, properties.get(QUERY_RESULTS_QUEUE_URL)),
    }
    is_s3 = destination.kind is DestinationKind.S3
    target = destination.bucket if is_s3 else destination.queue_url
    is_readable = properties.get(QUERY_ROLE) and properties.get(QUERY_RESULTS_SHARED)
    if is_readable and target in own_places.get(destination.kind, ()):
        raise InvalidRequestError(
            f"table {table_name!r} restricts its callers, and all callers can read the results of "
            "others there: name another bucket or queue for the results, or deploy the instance "
            f"with {QUERY_RESULTS_SHARED.name}=false"
        )


def _dispatcher(instance: Instance, caller: str) -> Dispatcher:
    properties = instance.properties()

    def table_of(message: QueryMessage) -> DispatchTable:
        ref = find_table(instance.tables.index, message.table_name, message.table_id)
        callers = instance.tables.properties.read(ref.id).get(QUERY_CALLERS)
        restriction = find_chain_restriction(callers, (caller, *message.requesters), ref.name)
        if callers:
            _check_results_are_private(message.results, ref.name, properties)
        return DispatchTable(ref.id, ref.name, instance.tables.state(ref.id), restriction)

    def check_iterator(name: str) -> None:
        instance.code.registry.find(CodeKind.ITERATOR, name)

    def check_destination(destination: ResultsDestination) -> None:
        if destination.bucket is not None:
            instance.queries.results_root(destination.bucket)
        if destination.kind is DestinationKind.SQS:
            instance.queries.results_queue(destination.queue_url)

    tracker = instance.queries.tracker()

    def remove_results(
        bucket: str | None, query_id: str, run: str, sub_query_ids: Collection[str]
    ) -> None:
        root, folder = instance.queries.results_root(bucket), f"{results_folder(query_id)}/"
        kept = {results_path(query_id, each) for each in sub_query_ids}
        matches = (each.path for each in root.list_objects(folder))
        # Deeper files belong to other ids, others are being written.
        old = [p for p in matches if p not in kept and _FILE.fullmatch(p.removeprefix(folder))]
        # Listed before the check, so none of them can be of a newer run.
        if old and tracker.is_newest(query_id, run):
            root.delete(old)

    return Dispatcher(
        tracker=tracker,
        find_table=table_of,
        check_iterator=check_iterator,
        check_destination=check_destination,
        send_subqueries=lambda bodies: instance.jobs.queue(QueueName.LEAF_QUERY).send_all(bodies),
        send_frame=frame_sender(instance.queries.send_frame),
        remove_results=remove_results,
        hold_seconds=properties.get(QUERY_HOLD_SECONDS),
        clock=instance.clock,
        bytes_max=properties.get(QUERY_BYTES_MAX),
    )
