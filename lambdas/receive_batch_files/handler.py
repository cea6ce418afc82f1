"""Keeps the files that messages name until the ingest batcher makes jobs of them."""

from functools import partial

from sleeper.ingest_batcher.service import receive_batch_message
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.runs.retry import SETTLED_ERRORS
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes messages off the batcher's queue. What can never be is rejected in the job tracker."""
    queue = QueueName.INGEST_BATCHER
    receive = partial(receive_batch_message, instance)
    return run_messages(event, instance, queue, receive, SETTLED_ERRORS[queue])
