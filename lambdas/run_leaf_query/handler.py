"""Runs the subqueries that the planner sent."""

from functools import partial

from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function
from sleeper.wiring.message_batches import Failures, run_messages
from sleeper.wiring.query_running import run_leaf_query_message
from sleeper.wiring.queue_name import QueueName


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes subqueries off their queue. What became of each is in the query tracker."""
    return run_messages(
        event, instance, QueueName.LEAF_QUERY, partial(run_leaf_query_message, instance)
    )
