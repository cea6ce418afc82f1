"""Stores the files that messages name, for the ingest batcher."""

from functools import partial

from sleeper.ingest_batcher.service import receive_batch_message
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of messages, and records invalid files as rejected in the job tracker."""
    receive = partial(receive_batch_message, instance)
    return run_messages(event, instance, QueueName.INGEST_BATCHER, receive)
