"""What becomes of a query's message: pinned, planned, recorded, its subqueries sent."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError
from sleeper.jobs.connection import SendFrame
from sleeper.jobs.query_tracker import (
    QueryIdTakenError,
    QueryPin,
    QueryTracker,
)
from sleeper.processing.restriction import Restriction, visible_columns
from sleeper.query.messages.destination import ResultsDestination
from sleeper.query.messages.query import (
    QueryMessage,
    make_query,
    parse_query_message,
    query_fingerprint,
    read_query_id,
)
from sleeper.query.request import check_query
from sleeper.query_service.frames import CompletedPart, tell_completed, tell_failed, tell_subqueries
from sleeper.query_service.hold import take_hold
from sleeper.query_service.plan import PlannedQuery, Subquery, plan_subqueries
from sleeper.schema.json import schema_from_json
from sleeper.schema.model import Schema
from sleeper.statestore.store import StateStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DispatchTable:
    """The table that a query is for, as its caller may see it."""

    id: str
    store: StateStore
    restriction: Restriction


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What dispatching takes.

    `find_table` raises NotFoundError, or InvalidRequestError if the caller may not query it;
    `check_iterator` InvalidRequestError if there is none of the name, `check_destination` if
    results cannot go there. `bytes_max` is how large the files of a query may be, 0 is any.
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


def dispatch_query(body: str, default_query_id: str, by: Dispatch) -> Subquery | None:
    """Sends the subqueries of the message; a single one is returned instead, to be run here.

    InvalidRequestError or NotFoundError if the query can never succeed.
    """
    message = parse_query_message(body, default_query_id)
    table = by.find_table(message)
    planned = _pinned(message, table, query_fingerprint(body), by)
    if planned is None:
        logger.info("query %s is finished already", message.query_id)
        return None
    subqueries = _plan(planned, table, by)
    ids = [each.message.sub_query_id for each in subqueries]
    by.tracker.plan(message.query_id, ids)
    tell_subqueries(message, ids, by.send_frame)
    if len(subqueries) == 1:
        return subqueries[0]
    if subqueries:
        by.send_subqueries([each.body for each in subqueries])
    else:
        tell_completed(message, [CompletedPart(message.frame_id, 0)], by.send_frame)
    logger.info("query %s has %d subqueries", message.query_id, len(ids))
    return None


def refuse_query(body: str, default_query_id: str, reason: str, by: Dispatch) -> None:
    """Records that the message's query cannot be run, and sends its error frame, once.

    If its id is another query's, that query stays as it is. Then the refusal is recorded under
    the default id, which is the message's own, and QueryIdTakenError is raised, since nobody
    looks there: the message is to end as a dead letter.
    """
    query_id, fingerprint = read_query_id(body, default_query_id), query_fingerprint(body)
    logger.warning("query %s failed: %s", query_id, reason)
    try:
        status = by.tracker.fail(query_id, fingerprint, reason)
    except QueryIdTakenError as taken:
        if by.tracker.fail(default_query_id, fingerprint, str(taken)) is not None:
            _tell_failed(body, default_query_id, str(taken), by)
        raise
    if status is not None:
        _tell_failed(body, default_query_id, status.error, by)


def _tell_failed(body: str, default_query_id: str, reason: str | None, by: Dispatch) -> None:
    try:
        message = parse_query_message(body, default_query_id)
    except InvalidRequestError:
        return
    tell_failed(message, reason, by.send_frame)


def _pinned(
    message: QueryMessage, table: DispatchTable, fingerprint: str, by: Dispatch
) -> PlannedQuery | None:
    """The query at the version and time of its first delivery; None if it is finished."""
    with table.store.reading() as state:
        schema = schema_from_json(state.schema_json)
        now_ms = max(by.clock(), state.version_time_ms)
        pin = QueryPin(fingerprint, table.id, state.version, now_ms)
    query = make_query(message, schema)
    check_query(query, schema)
    visible_columns(table.restriction, schema, query.columns)
    for call in (message.iterator, table.restriction.iterator):
        if call is not None:
            by.check_iterator(call.name)
    by.check_destination(message.results)
    first = by.tracker.begin(message.query_id, pin)
    return None if first is None else PlannedQuery(message, query, first, table.restriction)


def _plan(planned: PlannedQuery, table: DispatchTable, by: Dispatch) -> list[Subquery]:
    version, query_id = planned.pin.version, planned.message.query_id
    subqueries = _subqueries_at(planned, table, version, by.bytes_max)
    if len(subqueries) > 1:
        take_hold(table.store, query_id, version, by.clock(), by.hold_seconds)
    return subqueries


def _subqueries_at(
    planned: PlannedQuery, table: DispatchTable, version: int, bytes_max: int
) -> list[Subquery]:
    # It was pinned before the state was read for this query.
    with table.store.reading(version, stale=True) as state:
        schema: Schema = schema_from_json(state.schema_json)
        return plan_subqueries(planned, schema, state, files_bytes_max=bytes_max)
