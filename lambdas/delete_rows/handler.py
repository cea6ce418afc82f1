"""Deletes rows of tables."""

from functools import partial

from sleeper.deletion.message import run_delete_message
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of deletes, and records invalid ones as rejected in the job tracker."""
    return run_messages(event, instance, QueueName.DELETION, partial(run_delete_message, instance))
