"""Splits partitions."""

from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from sleeper.splitting.service import run_split_message
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, run_messages


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of partitions from the splitting queue."""

    def split(message: Message) -> None:
        run_split_message(instance, message.body)

    return run_messages(event, instance, QueueName.SPLITTING, split)
