"""Dispatches query messages: pins, plans and records each query, and sends its subqueries."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.jobs.query_tracker import (
    QueryIdTakenError,
    QueryPin,
    QueryTracker,
    SendFrame,
)
from sleeper.processing.restriction import Restriction, restrict_version, visible_columns
from sleeper.query.hold import create_hold, take_shared_hold
from sleeper.query.messages.destination import ResultsDestination
from sleeper.query.messages.query import (
    QueryMessage,
    make_query,
    parse_query_message,
    query_fingerprint,
    read_query_id,
)
from sleeper.query.plan import check_has_rows
from sleeper.query.request import check_query
from sleeper.query_service.frames import CompletedPart, send_completed, send_failed, send_subqueries
from sleeper.query_service.plan import (
    PlannedQuery,
    Subquery,
    hold_period_ms,
    plan_subqueries,
    query_hold_id,
)
from sleeper.retries import Backoff, retry
from sleeper.statestore.store import StateStore

logger = logging.getLogger(__name__)
_RESTARTS = Backoff(retries=4)


@dataclass(frozen=True, slots=True)
class DispatchTable:
    """The table of a query, under its caller's restriction."""

    id: str
    name: str
    store: StateStore
    restriction: Restriction


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """The ports and limits for dispatching queries.

    `find_table` raises NotFoundError, or InvalidRequestError if the caller may not query the
    table. `check_iterator` and `check_destination` raise InvalidRequestError for an unknown
    iterator and for an invalid destination. `bytes_max` limits the size of a query's files; 0
    is no limit.
    """

    tracker: QueryTracker
    find_table: Callable[[QueryMessage], DispatchTable]
    check_iterator: Callable[[str], None]
    check_destination: Callable[[ResultsDestination], None]
    send_subqueries: Callable[[Sequence[str]], None]
    send_frame: SendFrame
    hold_seconds: int
    clock: Clock
    bytes_max: int = 0


def dispatch_query(body: str, default_query_id: str, dispatcher: Dispatcher) -> Subquery | None:
    """Sends the subqueries of the message; returns a single one for the caller to run instead.

    InvalidRequestError or NotFoundError if the query cannot succeed.
    """
    message = parse_query_message(body, default_query_id)
    table = dispatcher.find_table(message)
    planned = _pin(message, table, query_fingerprint(body), dispatcher)
    if planned is None:
        logger.info("skipped query %s, which is finished", message.query_id)
        return None
    subqueries = _plan(planned, table, dispatcher)
    ids = [each.message.sub_query_id for each in subqueries]
    dispatcher.tracker.plan(message.query_id, ids)
    send_subqueries(message, ids, dispatcher.send_frame)
    if len(subqueries) == 1:
        return subqueries[0]
    if subqueries:
        dispatcher.send_subqueries([each.body for each in subqueries])
    else:
        send_completed(message, [CompletedPart(message.frame_id, 0)], dispatcher.send_frame)
    logger.info("query %s has %d subqueries", message.query_id, len(ids))
    return None


def refuse_query(body: str, default_query_id: str, reason: str, dispatcher: Dispatcher) -> None:
    """Records the message's query as failed, and sends its error frame, once.

    If its id belongs to another query, records the failure under the default id, the message's
    own, and raises QueryIdTakenError: its sender does not know this id, so the message should
    become a dead letter.
    """
    query_id, fingerprint = read_query_id(body, default_query_id), query_fingerprint(body)
    logger.warning("query %s failed: %s", query_id, reason)
    try:
        status = dispatcher.tracker.fail(query_id, fingerprint, reason)
    except QueryIdTakenError as taken:
        if dispatcher.tracker.fail(default_query_id, fingerprint, str(taken)) is not None:
            _send_failure(body, default_query_id, str(taken), dispatcher)
        raise
    if status is not None:
        _send_failure(body, default_query_id, status.error, dispatcher)


def _send_failure(
    body: str, default_query_id: str, reason: str | None, dispatcher: Dispatcher
) -> None:
    try:
        message = parse_query_message(body, default_query_id)
    except InvalidRequestError:
        return
    send_failed(message, reason, dispatcher.send_frame)


def _pin(
    message: QueryMessage, table: DispatchTable, fingerprint: str, dispatcher: Dispatcher
) -> PlannedQuery | None:
    """Returns the query at the version and time of its first delivery; None if it is finished."""

    def hold_version() -> int:
        with table.store.reading(message.version(dispatcher.clock)) as state:
            check_has_rows(table.name, state)
            version, is_snapshot_table = state.version, state.is_snapshot_table
        if is_snapshot_table:
            # The version can expire before the query has a hold of its own.
            seconds = dispatcher.hold_seconds
            take_shared_hold(table.store, version, seconds, dispatcher.clock, "queries by message")
        return version

    version = retry(hold_version, on=StateMovedOnError, backoff=_RESTARTS)
    with table.store.reading(version, stale=True) as state:
        schema = state.schema
        now_ms = max(dispatcher.clock(), state.version_time_ms)
        restriction = restrict_version(table.restriction, schema, state.newest_schema)
        pin = QueryPin(fingerprint, table.id, version, now_ms)
    query = make_query(message, schema)
    check_query(query, schema)
    visible_columns(restriction, schema, query.columns)
    for call in (message.iterator, table.restriction.iterator):
        if call is not None:
            dispatcher.check_iterator(call.name)
    dispatcher.check_destination(message.results)
    first = dispatcher.tracker.begin(message.query_id, pin)
    return None if first is None else PlannedQuery(message, query, first, table.restriction)


def _plan(planned: PlannedQuery, table: DispatchTable, dispatcher: Dispatcher) -> list[Subquery]:
    """Plans the query, and holds its version for several subqueries.

    Extends the hold if an earlier delivery of the query created it. StateMovedOnError if files
    of the version may be gone.
    """
    version, query_id = planned.pin.version, planned.message.query_id
    # This process has read the pinned version, so the log need not be read again.
    with table.store.reading(version, stale=True) as state:
        schema = state.schema
        bytes_max = dispatcher.bytes_max
        subqueries = plan_subqueries(planned, schema, state, files_bytes_max=bytes_max)
    if len(subqueries) > 1:
        seconds = dispatcher.hold_seconds
        create_hold(
            table.store,
            query_hold_id(query_id),
            f"query {query_id}",
            version,
            dispatcher.clock(),
            seconds,
            hold_period_ms(seconds),
        )
    return subqueries
