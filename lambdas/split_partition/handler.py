"""Splits the partitions that messages name."""

from sleeper.jobs.queue import Message
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function
from sleeper.wiring.message_batches import Failures, run_messages
from sleeper.wiring.queue_name import QueueName
from sleeper.wiring.settled_errors import SETTLED_ERRORS
from sleeper.wiring.splitting import run_split_message


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes partitions off the splitting queue."""

    def split(message: Message) -> None:
        run_split_message(instance, message.body)

    queue = QueueName.SPLITTING
    return run_messages(event, instance, queue, split, SETTLED_ERRORS[queue])
