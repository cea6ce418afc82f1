"""Subqueries of queries that came as messages: run, their rows published."""

import logging

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import Message
from sleeper.properties.engine import (
    QUERY_HOLD_SECONDS,
    QUERY_MESSAGE_ROWS_MAX,
    QUERY_MESSAGE_SECONDS_MAX,
    QUEUE_RECEIVES_MAX,
)
from sleeper.properties.instance import QUERY_RESULTS_BATCH_SIZE
from sleeper.query.engine import QueryTable
from sleeper.query.messages.leaf import LeafQueryMessage, parse_leaf_query_message
from sleeper.query.service import make_query_table
from sleeper.query_service.frames import frame_sender
from sleeper.query_service.publish import Publishing
from sleeper.query_service.run_leaf import LeafRunning, run_leaf_query
from sleeper.tables.table_index import find_table

logger = logging.getLogger(__name__)


def run_leaf_query_message(instance: Instance, message: Message) -> int:
    """Runs the subquery of a message; how many rows it gave.

    What can never succeed is FAILED in the tracker; anything else is raised, and the message
    may come again.
    """
    try:
        leaf = parse_leaf_query_message(message.body)
    except InvalidRequestError as error:
        # Nobody but the planner sends these, so there is no query to fail.
        logger.error("subquery dropped: %s", error)
        return 0
    return run_subquery(instance, leaf, message.receives)


def run_subquery(instance: Instance, leaf: LeafQueryMessage, tries: int, held: bool = True) -> int:
    """Runs a subquery; how many rows it gave. `tries` counts this one."""

    def table_of(table_id: str) -> QueryTable:
        return make_query_table(
            OpenTable(instance, find_table(instance.tables.index, None, table_id))
        )

    properties = instance.properties()
    publishing = Publishing(
        instance.queries.results_root,
        instance.queries.results_queue,
        frame_sender(instance.queries.send_frame),
        properties.get(QUERY_RESULTS_BATCH_SIZE),
    )
    by = LeafRunning(
        tracker=instance.queries.tracker(),
        find_table=table_of,
        engine=instance.queries.engine,
        publishing=publishing,
        tries_max=properties.get(QUEUE_RECEIVES_MAX),
        hold_seconds=properties.get(QUERY_HOLD_SECONDS),
        clock=instance.clock,
        rows_max=properties.get(QUERY_MESSAGE_ROWS_MAX),
        seconds_max=properties.get(QUERY_MESSAGE_SECONDS_MAX),
    )
    return run_leaf_query(leaf, tries, by, held)
