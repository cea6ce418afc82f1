"""Finds partitions that exceed the splitting threshold, and sends them to the splitting queue."""

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.reports.metric import Metric
from sleeper.splitting.find import send_new_splits
from sleeper.tables import TableRef
from sleeper.workers.lambda_function import Event, lambda_function, put_metrics
from sleeper.workers.message_batch import Failures, run_for_tables


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of messages with table ids."""

    def operate(ref: TableRef) -> None:
        sent = send_new_splits(instance, ref)
        if sent:
            put_metrics(instance, ref.name, {Metric.PARTITIONS_TO_SPLIT: sent})

    return run_for_tables(
        event, instance, QueueName.FIND_PARTITIONS_TO_SPLIT, operate, online_only=True
    )
