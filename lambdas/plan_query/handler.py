"""Plans queries by message, and runs a query of a single leaf."""

from functools import partial

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.query_service.service import run_query_message
from sleeper.retries import FUNCTION_RECEIVES_MIN
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of queries, and records their state in the query tracker."""
    run = partial(run_query_message, instance, tries_min=FUNCTION_RECEIVES_MIN)
    return run_messages(event, instance, QueueName.QUERY, run)
