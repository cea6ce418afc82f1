"""Gives pending exports to the exporters of their queues."""

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSEvent

from sleeper.export_queue.messages import drain_messages
from sleeper.instance import Instance
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.message_batch import Failures, received_message


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of buckets from a FIFO queue with one group per bucket."""
    report = drain_messages(
        instance, [received_message(each) for each in SQSEvent(dict(event)).records]
    )
    return {"batchItemFailures": [{"itemIdentifier": each} for each in report.failed]}
