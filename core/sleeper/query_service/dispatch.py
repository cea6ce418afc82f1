"""Dispatches query messages: pins, plans and records each query, and sends its subqueries."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.jobs.query_tracker import (
    QueryHistory,
    QueryPin,
    QueryState,
    QueryTracker,
    SendFrame,
    run_of_message,
)
from sleeper.processing.restriction import Restriction, restrict_version, visible_columns
from sleeper.query.hold import create_hold, take_shared_hold
from sleeper.query.messages.destination import DestinationKind, ResultsDestination
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


class RemoveResults(Protocol):
    """Deletes results of a query's id."""

    def __call__(
        self, bucket: str | None, query_id: str, run: str, sub_query_ids: Collection[str]
    ) -> None:
        """Deletes all but those of these subqueries, if the run is the newest of the id."""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """The ports and limits for dispatching queries.

    `find_table` raises NotFoundError, or InvalidRequestError if the caller may not query the
    table. `check_iterator` and `check_destination` raise InvalidRequestError for an unknown
    iterator and for an invalid destination. `remove_results` deletes the results of earlier
    queries. `bytes_max` limits the size of a query's files; 0
    is no limit.
    """

    tracker: QueryTracker
    find_table: Callable[[QueryMessage], DispatchTable]
    check_iterator: Callable[[str], None]
    check_destination: Callable[[ResultsDestination], None]
    send_subqueries: Callable[[Sequence[str]], None]
    send_frame: SendFrame
    remove_results: RemoveResults
    hold_seconds: int
    clock: Clock
    bytes_max: int = 0


def dispatch_query(body: str, message_id: str, dispatcher: Dispatcher) -> Subquery | None:
    """Sends the subqueries of the message; returns a single one for the caller to run instead.

    InvalidRequestError or NotFoundError if the query cannot succeed.
    """
    message = parse_query_message(body, message_id)
    table = dispatcher.find_table(message)
    run = run_of_message(message_id)
    planned = _pin(message, table, query_fingerprint(body), run, dispatcher)
    if planned is None:
        logger.info("skipped query %s, which is finished", message.query_id)
        return None
    subqueries = _plan(planned, table, dispatcher)
    ids = [each.message.sub_query_id for each in subqueries]
    _remove_results(planned, ids, dispatcher)
    dispatcher.tracker.plan(message.query_id, ids, planned.pin.run)
    send_subqueries(message, ids, dispatcher.send_frame)
    if len(subqueries) == 1:
        return subqueries[0]
    if subqueries:
        dispatcher.send_subqueries([each.body for each in subqueries])
    else:
        send_completed(message, [CompletedPart(message.frame_id, 0)], dispatcher.send_frame)
    logger.info("query %s has %d subqueries", message.query_id, len(ids))
    return None


def refuse_query(body: str, message_id: str, reason: str, dispatcher: Dispatcher) -> None:
    """Records the message's query as failed, and sends its error frame, once.

    QueryIdTakenError if its id belongs to another query, see `refuse_taken_id`.
    """
    query_id, fingerprint = read_query_id(body, message_id), query_fingerprint(body)
    run = run_of_message(message_id)
    logger.warning("query %s failed: %s", query_id, reason)
    status = dispatcher.tracker.fail(query_id, fingerprint, reason, run)
    if status is not None:
        if query_id != message_id:
            dispatcher.remove_results(None, query_id, run, ())
        _send_failure(body, message_id, status.error, dispatcher)


def refuse_taken_id(body: str, message_id: str, reason: str, dispatcher: Dispatcher) -> None:
    """Records the failure of a query whose id belongs to another, under the message's own id.

    Its sender does not know this id, so the message should become a dead letter.
    """
    fingerprint, run = query_fingerprint(body), run_of_message(message_id)
    if dispatcher.tracker.fail(message_id, fingerprint, reason, run) is not None:
        _send_failure(body, message_id, reason, dispatcher)


def is_refused(body: str, message_id: str, tracker: QueryHistory) -> bool:
    """Returns whether an earlier delivery of the message was refused by `refuse_taken_id`."""
    if read_query_id(body, message_id) == message_id:
        return False
    try:
        return tracker.query(message_id).state is QueryState.FAILED
    except NotFoundError:
        return False


def _send_failure(body: str, message_id: str, reason: str | None, dispatcher: Dispatcher) -> None:
    try:
        message = parse_query_message(body, message_id)
    except InvalidRequestError:
        return
    send_failed(message, reason, dispatcher.send_frame)


def _pin(
    message: QueryMessage,
    table: DispatchTable,
    fingerprint: str,
    run: str,
    dispatcher: Dispatcher,
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
        pin = QueryPin(fingerprint, table.id, version, now_ms, run)
    query = make_query(message, schema)
    check_query(query, schema)
    visible_columns(restriction, schema, query.columns)
    for call in (message.iterator, table.restriction.iterator):
        if call is not None:
            dispatcher.check_iterator(call.name)
    dispatcher.check_destination(message.results)
    first = dispatcher.tracker.begin(message.query_id, pin)
    return None if first is None else PlannedQuery(message, query, first, table.restriction)


def _remove_results(planned: PlannedQuery, ids: Collection[str], dispatcher: Dispatcher) -> None:
    """Deletes results of earlier queries with the id, before anything of this one is answered.

    Results stay longer than the tracker remembers a query, so the own bucket is always checked.
    Other buckets may not allow that, so there only a query that replaces another checks it.
    """
    pin, results = planned.pin, planned.message.results
    is_own = results.kind is DestinationKind.S3 and results.bucket is None
    if is_own or pin.replaces:
        dispatcher.remove_results(results.bucket, planned.message.query_id, pin.run, ids)


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
            query_hold_id(query_id, planned.pin.run),
            f"query {query_id}",
            version,
            dispatcher.clock(),
            seconds,
            hold_period_ms(seconds),
        )
    return subqueries
