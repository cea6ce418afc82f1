"""Runs a subquery: reads a leaf's rows, publishes them, and ends the query if it is the last."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.clock import Clock
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UserCodeError,
)
from sleeper.jobs.query_tracker import (
    QueryRecords,
    QueryState,
    QueryStatus,
    too_many_rows,
)
from sleeper.properties.engine import QUERY_MESSAGE_SECONDS_MAX
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.interruption import TimeLimit
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.leaf import LeafQueryMessage, make_leaf_query
from sleeper.query.messages.query import QueryMessage
from sleeper.query.run import parse_schema, run_query
from sleeper.query_service.frames import (
    CompletedPart,
    are_listed,
    kept_alive,
    listeners,
    tell_completed,
    tell_failed,
)
from sleeper.query_service.hold import release_hold, renew_hold
from sleeper.query_service.publish import Publishing, locations_of, publish_rows
from sleeper.schema.model import Schema

logger = logging.getLogger(__name__)

# Another try would end alike.
_FINAL = (InvalidRequestError, NotFoundError, StateMovedOnError, DataError, UserCodeError)


@dataclass(frozen=True, slots=True)
class LeafRunning:
    """What running subqueries takes. A subquery is given up after so many tries.

    `rows_max` is how many rows the subqueries of a query give together, `seconds_max` how long
    after the query's time they may run; 0 is no limit.
    """

    tracker: QueryRecords
    find_table: Callable[[str], QueryTable]
    engine: Callable[[], QueryEngine]
    publishing: Publishing
    tries_max: int
    hold_seconds: int
    clock: Clock
    rows_max: int = 0
    seconds_max: int = 0


def run_leaf_query(leaf: LeafQueryMessage, tries: int, by: LeafRunning, held: bool = True) -> int:
    """Runs a subquery unless it is finished; how many rows it gave. `held`: by a query's hold.

    `tries` counts this one. What cannot succeed, or was tried too often, is recorded as failed.
    Anything else that goes wrong is raised, and the subquery may come again.
    """
    query_id, sub_query_id = leaf.query.query_id, leaf.sub_query_id
    rows, error = 0, None
    if by.tracker.start(query_id, sub_query_id):
        try:
            _check_tries(leaf, tries, by.tries_max)
            rows = _run(leaf, by, held)
        except _FINAL as failure:
            error = str(failure)
        except Exception as failure:
            if tries < by.tries_max:
                raise
            error = f"given up after {tries} tries: {type(failure).__name__}: {failure}"
    if error is not None:
        logger.warning("subquery %s of %s failed: %s", sub_query_id, query_id, error)
    # Also for one that was finished before: whoever did may have died before it ended the query.
    ended = by.tracker.finish(query_id, sub_query_id, rows, error, by.rows_max)
    if ended is not None:
        _end(leaf, ended, by, held)
    return rows


def _check_tries(leaf: LeafQueryMessage, tries: int, tries_max: int) -> None:
    if tries > tries_max:
        raise InvalidRequestError(
            f"given up after {tries - 1} tries, of which the last ones told nothing: "
            "it may need more memory or time than its worker has"
        )
    if tries > 1 and leaf.query.results.kind is DestinationKind.WEBSOCKET:
        raise InvalidRequestError(
            "interrupted while rows were sent to a WebSocket: to send them again would double "
            "them; ask again"
        )


def _run(leaf: LeafQueryMessage, by: LeafRunning, held: bool) -> int:
    table_id = leaf.query.table_id
    assert table_id is not None
    table = replace(by.find_table(table_id), restriction=leaf.restriction)
    now_ms = by.clock()
    if held:
        begun_ms = now_ms if leaf.now_ms is None else leaf.now_ms
        renew_hold(table.store, leaf.query.query_id, begun_ms, now_ms, by.hold_seconds)
    schema = _schema(table, leaf.version)
    engine = by.engine()
    limit = _time_limit(leaf, now_ms, by.seconds_max, engine.settings.seconds_max)
    limit.check()
    with (
        kept_alive(leaf.query, by.publishing.send_frame),
        run_query(make_leaf_query(leaf, schema), table, engine, limit, held) as result,
    ):
        rows = _within(result, _room(leaf, by), by.rows_max)
        return publish_rows(leaf, schema, result.schema, rows, by.publishing)


def _time_limit(
    leaf: LeafQueryMessage, now_ms: int, seconds_max: int, own_seconds_max: int
) -> TimeLimit:
    """The subquery's own limit, or the query's if that is sooner."""
    own = TimeLimit.from_now(own_seconds_max)
    if not seconds_max or leaf.now_ms is None:
        return own
    begun = time.monotonic() - (now_ms - leaf.now_ms) / 1000
    whole = TimeLimit(seconds_max, begun, QUERY_MESSAGE_SECONDS_MAX.name)
    return min(own, whole, key=lambda limit: math.inf if (s := limit.seconds_left) is None else s)


def _room(leaf: LeafQueryMessage, by: LeafRunning) -> int | None:
    """How many rows the subqueries that are finished have left; None is any number."""
    if not by.rows_max:
        return None
    try:
        return by.rows_max - by.tracker.query(leaf.query.query_id).row_count
    except NotFoundError:
        # It is forgotten, and what is left of it is nobody's.
        return by.rows_max


def _within(
    batches: Iterable[pa.RecordBatch], room: int | None, rows_max: int
) -> Iterator[pa.RecordBatch]:
    """The batches. InvalidRequestError if they have more rows than there is room for."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if room is not None and rows > room:
            raise InvalidRequestError(too_many_rows(rows_max))
        yield batch


def _schema(table: QueryTable, version: int | None) -> Schema:
    """A version's schema does not change: if this process has seen it, the log is not asked."""
    try:
        with table.store.reading(version, stale=version is not None) as state:
            return parse_schema(state.schema_json)
    except (InvalidRequestError, NotFoundError):
        with table.store.reading(version) as state:
            return parse_schema(state.schema_json)


def _end(leaf: LeafQueryMessage, status: QueryStatus, by: LeafRunning, held: bool) -> None:
    logger.info("query %s is %s", status.query_id, status.state.value)
    _tell_end(leaf.query, status, by)
    if held and leaf.query.table_id is not None:
        try:
            release_hold(by.find_table(leaf.query.table_id).store, status.query_id)
        except SleeperError as error:
            # Gone with its table, or it expires.
            logger.info("hold of query %s is left: %s", status.query_id, error)


def _tell_end(query: QueryMessage, status: QueryStatus, by: LeafRunning) -> None:
    if not listeners(query):
        return
    send = by.publishing.send_frame
    if status.state is not QueryState.COMPLETED:
        tell_failed(query, status.error, send)
        return
    try:
        parts = _completed_parts(query, status, by)
    except SleeperError as error:
        # The query has ended, so no retry comes back here: the clients would wait in vain.
        logger.warning("could not read the subqueries of query %s: %s", query.query_id, error)
        tell_failed(query, f"could not read its subqueries: {error}", send)
        return
    tell_completed(query, parts, send)


def _completed_parts(
    query: QueryMessage, status: QueryStatus, by: LeafRunning
) -> list[CompletedPart]:
    subqueries = by.tracker.subqueries(query.query_id)
    if not are_listed(len(subqueries)):
        locations = locations_of(query, by.publishing)
        return [CompletedPart(query.frame_id, status.row_count, locations)]
    return [
        CompletedPart(
            each.sub_query_id,
            each.row_count,
            locations_of(query, by.publishing, each.sub_query_id),
        )
        for each in subqueries
    ]
