"""Plans the queries that messages ask; one that needs a single leaf it runs itself."""

from functools import partial

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.query_service.service import run_query_message
from sleeper.runs.retry import return_soon
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes queries off the query queue. What became of each is in the query tracker."""
    run = partial(run_query_message, instance)
    return run_messages(event, instance, QueueName.QUERY, run, give_back=return_soon)
