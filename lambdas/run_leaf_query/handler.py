"""Runs the subqueries that the planner sent."""

from functools import partial

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.query_service.leaf_service import run_leaf_query_message
from sleeper.runs.retry import return_soon
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes subqueries off their queue. What became of each is in the query tracker."""
    run = partial(run_leaf_query_message, instance)
    return run_messages(event, instance, QueueName.LEAF_QUERY, run, give_back=return_soon)
