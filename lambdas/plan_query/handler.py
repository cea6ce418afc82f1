"""Plans the queries that messages ask; one that needs a single leaf it runs itself."""

from functools import partial

from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function
from sleeper.wiring.message_batches import Failures, run_messages
from sleeper.wiring.query_dispatch import run_query_message
from sleeper.wiring.queue_name import QueueName


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes queries off the query queue. What became of each is in the query tracker."""
    return run_messages(event, instance, QueueName.QUERY, partial(run_query_message, instance))
