"""Runs subqueries: reads a leaf's rows, publishes them, and ends the query after the last one."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
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
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.query_tracker import (
    QueryRecords,
    QueryState,
    QueryStatus,
    format_rows_error,
)
from sleeper.jobs.queue import Message
from sleeper.properties.instance import (
    QUERY_HOLD_SECONDS,
    QUERY_MESSAGE_ROWS_MAX,
    QUERY_MESSAGE_SECONDS_MAX,
    QUERY_RESULTS_BATCH_SIZE,
    QUEUE_RECEIVES_MAX,
)
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import keep_hold, release_hold, renew_hold
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.leaf import (
    LeafQueryMessage,
    make_leaf_query,
    parse_leaf_query_message,
)
from sleeper.query.messages.query import QueryMessage
from sleeper.query.result import TimeLimit
from sleeper.query.run import run_query
from sleeper.query.service import make_query_table
from sleeper.query_service.frames import (
    CompletedPart,
    are_listed,
    frame_sender,
    kept_alive,
    listeners,
    send_completed,
    send_failed,
)
from sleeper.query_service.plan import hold_period_ms, query_hold_id
from sleeper.query_service.publish import Publisher, publish_rows, result_locations
from sleeper.schema.model import Schema
from sleeper.tables import find_table

logger = logging.getLogger(__name__)

# Errors that another attempt would repeat.
_FINAL = (InvalidRequestError, NotFoundError, StateMovedOnError, DataError, UserCodeError)


def run_leaf_query_message(instance: Instance, message: Message, tries_min: int = 1) -> int:
    """Runs the subquery of a message, and returns its number of rows.

    A subquery that cannot succeed, or not within the tries of the queue, at least `tries_min`, is
    FAILED in the tracker. Raises all other errors, and the message returns to its queue.
    """
    try:
        leaf = parse_leaf_query_message(message.body)
    except InvalidRequestError as error:
        # Only the planner sends these messages, so no query is known that could fail.
        logger.error("dropped invalid subquery message: %s", error)
        return 0
    return run_subquery(instance, leaf, message.receives, tries_min)


def run_queued_leaf_query(instance: Instance, message: Message, _task_id: str) -> tuple[int, int]:
    """Runs the subquery of a message. Returns the numbers of rows read and written."""
    return run_leaf_query_message(instance, message), 0


def run_subquery(
    instance: Instance, leaf: LeafQueryMessage, tries: int, tries_min: int = 1, held: bool = True
) -> int:
    """Runs a subquery, and returns its number of rows. `tries` includes this one."""

    def table_of(table_id: str) -> QueryTable:
        return make_query_table(
            OpenTable(instance, find_table(instance.tables.index, None, table_id))
        )

    properties = instance.properties()
    tracker = instance.queries.tracker()
    publisher = Publisher(
        instance.queries.results_root,
        instance.queries.results_queue,
        frame_sender(instance.queries.send_frame),
        properties.get(QUERY_RESULTS_BATCH_SIZE),
        tracker.is_newest,
    )
    runner = LeafRunner(
        tracker=tracker,
        find_table=table_of,
        engine=instance.queries.engine,
        publisher=publisher,
        tries_max=max(tries_min, properties.get(QUEUE_RECEIVES_MAX)),
        hold_seconds=properties.get(QUERY_HOLD_SECONDS),
        clock=instance.clock,
        rows_max=properties.get(QUERY_MESSAGE_ROWS_MAX),
        seconds_max=properties.get(QUERY_MESSAGE_SECONDS_MAX),
    )
    return run_leaf_query(leaf, tries, runner, held)


@dataclass(frozen=True, slots=True)
class LeafRunner:
    """The ports and limits for running subqueries.

    `tries_max` limits the attempts of a subquery, `rows_max` the rows of all subqueries of a
    query, `seconds_max` the time from the start of a query to the end of its subqueries; 0 is
    no limit.
    """

    tracker: QueryRecords
    find_table: Callable[[str], QueryTable]
    engine: Callable[[], QueryEngine]
    publisher: Publisher
    tries_max: int
    hold_seconds: int
    clock: Clock
    rows_max: int = 0
    seconds_max: int = 0


def run_leaf_query(
    leaf: LeafQueryMessage, tries: int, runner: LeafRunner, held: bool = True
) -> int:
    """Runs a subquery unless it is finished, and returns its number of rows.

    `tries` includes this one; `held` means that the query has a hold. Records a subquery that
    cannot succeed, or had too many tries, as failed. Raises all other errors for a retry.
    """
    query_id, sub_query_id = leaf.query.query_id, leaf.sub_query_id
    rows, error = 0, None
    if runner.tracker.start(query_id, sub_query_id, leaf.run):
        try:
            _check_tries(leaf, tries, runner.tries_max)
            rows = _run(leaf, runner, held)
        except _FINAL as failure:
            error = str(failure)
        except Exception as failure:
            if tries < runner.tries_max:
                raise
            error = f"gave up after {tries} tries: {type(failure).__name__}: {failure}"
    if error is not None:
        logger.warning("subquery %s of %s failed: %s", sub_query_id, query_id, error)
    # A worker that finished the subquery before may have died before it ended the query.
    ended = runner.tracker.finish(query_id, sub_query_id, rows, error, runner.rows_max, leaf.run)
    if ended is not None:
        _end(leaf, ended, runner, held)
    return rows


def _check_tries(leaf: LeafQueryMessage, tries: int, tries_max: int) -> None:
    if tries > tries_max:
        raise InvalidRequestError(
            f"gave up after {tries - 1} tries, the last without a result: "
            "the subquery may need more memory or time than its worker has"
        )
    if tries > 1 and leaf.query.results.kind is DestinationKind.WEBSOCKET:
        raise InvalidRequestError(
            "interrupted while it sent rows to a WebSocket, and a retry would send rows twice: "
            "send the query again"
        )


def _run(leaf: LeafQueryMessage, runner: LeafRunner, held: bool) -> int:
    table_id = leaf.query.table_id
    assert table_id is not None
    table = replace(runner.find_table(table_id), restriction=leaf.restriction)
    now_ms = runner.clock()
    schema = _schema(table, leaf.version)
    engine = runner.engine()
    limit = _time_limit(leaf, now_ms, runner.seconds_max, engine.settings.seconds_max)
    limit.check()
    with (
        _kept_version(leaf, table, runner) if held else nullcontext(),
        kept_alive(leaf.query, runner.publisher.send_frame),
        run_query(make_leaf_query(leaf, schema), table, engine, limit, held) as result,
    ):
        rows = _limited(result, _rows_left(leaf, runner), runner.rows_max)
        return publish_rows(leaf, schema, result.schema, rows, runner.publisher)


def _kept_version(
    leaf: LeafQueryMessage, table: QueryTable, runner: LeafRunner
) -> AbstractContextManager[object]:
    """Renews the hold of the query, unless it is new, and then while the rows are read."""
    hold_id, seconds = query_hold_id(leaf.query.query_id, leaf.run), runner.hold_seconds
    now_ms, period_ms = runner.clock(), hold_period_ms(runner.hold_seconds)
    # Subqueries of a short query do not renew its hold.
    if now_ms - (now_ms if leaf.now_ms is None else leaf.now_ms) >= period_ms:
        renew_hold(table.store, hold_id, now_ms, seconds, period_ms)
    return keep_hold(table.store, hold_id, runner.clock, seconds, period_ms)


def _time_limit(
    leaf: LeafQueryMessage, now_ms: int, seconds_max: int, own_seconds_max: int
) -> TimeLimit:
    """Returns the limit of the subquery or of the query, whichever is sooner."""
    own = TimeLimit.from_now(own_seconds_max)
    if not seconds_max or leaf.now_ms is None:
        return own
    begun = time.monotonic() - (now_ms - leaf.now_ms) / 1000
    whole = TimeLimit(seconds_max, begun, QUERY_MESSAGE_SECONDS_MAX.name)
    return min(own, whole, key=lambda limit: math.inf if (s := limit.seconds_left) is None else s)


def _rows_left(leaf: LeafQueryMessage, runner: LeafRunner) -> int | None:
    """Returns the rows that finished subqueries leave to the others; None is no limit."""
    if not runner.rows_max:
        return None
    try:
        return runner.rows_max - runner.tracker.query(leaf.query.query_id).row_count
    except NotFoundError:
        # The tracker has removed the query, so its rows cannot be counted.
        return runner.rows_max


def _limited(
    batches: Iterable[pa.RecordBatch], rows_left: int | None, rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yields the batches. InvalidRequestError if they have more rows than are left."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if rows_left is not None and rows > rows_left:
            raise InvalidRequestError(format_rows_error(rows_max))
        yield batch


def _schema(table: QueryTable, version: int | None) -> Schema:
    """Returns a version's schema, without reading the log if this process knows the version."""
    try:
        with table.store.reading(version, stale=version is not None) as state:
            return state.schema
    except (InvalidRequestError, NotFoundError):
        with table.store.reading(version) as state:
            return state.schema


def _end(leaf: LeafQueryMessage, status: QueryStatus, runner: LeafRunner, held: bool) -> None:
    logger.info("query %s ended: %s", status.query_id, status.state.value)
    _send_end(leaf.query, status, runner)
    if held and leaf.query.table_id is not None:
        try:
            store = runner.find_table(leaf.query.table_id).store
            release_hold(store, query_hold_id(status.query_id, leaf.run))
        except SleeperError as error:
            # The hold was deleted with its table, or expires.
            logger.info("could not release hold of query %s: %s", status.query_id, error)


def _send_end(query: QueryMessage, status: QueryStatus, runner: LeafRunner) -> None:
    if not listeners(query):
        return
    send = runner.publisher.send_frame
    if status.state is not QueryState.COMPLETED:
        send_failed(query, status.error, send)
        return
    try:
        parts = _completed_parts(query, status, runner)
    except SleeperError as error:
        # The query has ended, so no retry would notify the clients.
        logger.warning("could not read the subqueries of query %s: %s", query.query_id, error)
        send_failed(query, f"could not read its subqueries: {error}", send)
        return
    send_completed(query, parts, send)


def _completed_parts(
    query: QueryMessage, status: QueryStatus, runner: LeafRunner
) -> list[CompletedPart]:
    subqueries = runner.tracker.subqueries(query.query_id)
    if not are_listed(len(subqueries)):
        locations = result_locations(query, runner.publisher)
        return [CompletedPart(query.frame_id, status.row_count, locations)]
    return [
        CompletedPart(
            each.sub_query_id,
            each.row_count,
            result_locations(query, runner.publisher, each.sub_query_id),
        )
        for each in subqueries
    ]
