"""Keeps the files that messages name until the ingest batcher makes jobs of them."""

from functools import partial

from sleeper.wiring.batching import receive_batch_message
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function
from sleeper.wiring.message_batches import Failures, run_messages
from sleeper.wiring.queue_name import QueueName
from sleeper.wiring.settled_errors import SETTLED_ERRORS


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes messages off the batcher's queue. What can never be is rejected in the job tracker."""
    queue = QueueName.INGEST_BATCHER
    receive = partial(receive_batch_message, instance)
    return run_messages(event, instance, queue, receive, SETTLED_ERRORS[queue])
